"""Which sums of many values Grappler's scheduling turns into a running accumulation."""

import numpy as np

from lowtide.core.index_spaces import OpId
from lowtide.engine.graph import Graph
from lowtide.frameworks.tensorflow.grappler.accumulate import can_accumulate
from lowtide.frameworks.tensorflow.grappler.kinds import SUM_KINDS
from lowtide.frameworks.tensorflow.grappler.pressure import Pressure

_NEAR_CAPACITY = 0.8


def sums_near_capacity(graph: Graph, pressure: Pressure, capacity_bytes: int) -> list[OpId]:
    """Return the sums that become accumulations: over two values, one of them live at a peak over 80 % of the capacity.

    `can_accumulate` sees to it that sums stay in one memory space. Source: memory_optimizer.cc of TensorFlow,
    SchedulingPass. O(n + e).
    """
    if pressure.excess_bytes <= (_NEAR_CAPACITY - 1.0) * capacity_bytes:
        return []
    live = np.zeros(graph.n_buffers, np.bool_)
    live[[each.buffer for each in pressure.live]] = True
    return [
        op
        for op, kind in enumerate(graph.op_kinds)
        if kind in SUM_KINDS and len(graph.reads[op]) > 2 and live[graph.reads[op]].any() and can_accumulate(graph, op)
    ]
