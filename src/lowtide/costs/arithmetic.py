"""The flops profile: nothing counts but arithmetic, so that plans run the fewest floating-point operations again."""

import math

import numpy as np
from numpy.typing import NDArray

from lowtide.costs.flops import ELEMENT_BYTES, estimate_flops
from lowtide.costs.machine import Machine
from lowtide.costs.work import operand_sizes
from lowtide.graph import Graph


def arithmetic_seconds(graph: Graph, machine: Machine) -> NDArray[np.float64]:
    """Return the seconds that every op's floating-point operations take; memory traffic and starts are free. O(n + e).

    An op has the operations that the graph says it has, as a reader counts who knows shapes. Where the graph says
    nothing they are estimated from sizes; an op of unknown kind, a copy among them, has one for every element of four
    bytes that it writes, so that even what computes nothing does not run again in vain.
    """
    counted: list[float] = graph.flops.tolist()
    for op, (read, written) in enumerate(operand_sizes(graph)):
        if math.isnan(counted[op]):
            counted[op] = estimate_flops(graph.op_kinds[op], read, written) or sum(written) / ELEMENT_BYTES
    return np.asarray(counted, np.float64) / machine.flops_per_second
