"""The eager profile: every op is a kernel of its own that moves its operands through memory."""

import numpy as np
from numpy.typing import NDArray

from lowtide.costs.flops import estimate_flops
from lowtide.costs.machine import Machine
from lowtide.costs.prices import carries_costs
from lowtide.graph import Graph


def eager_seconds(graph: Graph, machine: Machine) -> NDArray[np.float64]:
    """Return the seconds of every op as its reader priced it, who knows shapes, else from sizes. O(n + e).

    From sizes: the larger of the time to read, write and mutate the op's buffers once and the time for its arithmetic,
    plus the start of a kernel.
    """
    if carries_costs(graph):
        return graph.cost
    sizes = graph.sizes.tolist()
    seconds = np.empty(graph.n_ops)
    for op, (kind, reads, writes, mutates) in enumerate(
        zip(graph.op_kinds, graph.reads, graph.writes, graph.mutates, strict=True)
    ):
        read = [sizes[buffer] for buffer in dict.fromkeys(reads)]
        written = [sizes[buffer] for buffer in dict.fromkeys([*writes, *mutates])]
        seconds[op] = machine.seconds(sum(read) + sum(written), estimate_flops(kind, read, written))
    return seconds
