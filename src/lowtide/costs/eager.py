"""The eager profile: every op is a kernel of its own that moves its operands through memory."""

import numpy as np
from numpy.typing import NDArray

from lowtide.costs.machine import Machine
from lowtide.costs.prices import carries_costs
from lowtide.costs.work import work_of_ops
from lowtide.graph import Graph


def eager_seconds(graph: Graph, machine: Machine) -> NDArray[np.float64]:
    """Return the seconds of every op as its reader priced it, who knows shapes, else from sizes. O(n + e).

    From sizes: the larger of the time to move the op's buffers and the time for its arithmetic, plus the start of a
    kernel.
    """
    if carries_costs(graph):
        return graph.cost
    return np.array([machine.seconds(traffic, flops) for traffic, flops in work_of_ops(graph)], np.float64)
