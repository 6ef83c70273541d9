"""The fused profile: pointwise ops melt into the kernels around them."""

import numpy as np
from numpy.typing import NDArray

from lowtide.costs.eager import eager_seconds
from lowtide.costs.kinds import POINTWISE, plain_kind
from lowtide.costs.machine import Machine
from lowtide.costs.work import work_of_ops
from lowtide.graph import Graph


def fused_seconds(graph: Graph, machine: Machine) -> NDArray[np.float64]:
    """Return the seconds of every op when a compiler fuses pointwise ops with their neighbors. O(n + e).

    Of a pointwise op only the share of its arithmetic is left: it starts no kernel, and what it reads is there
    already. All others cost what they cost eagerly. The share is the machine's, so that prices of a reader for
    another machine shrink alike.
    """
    seconds = eager_seconds(graph, machine).copy()
    for op, (kind, (traffic, flops)) in enumerate(zip(graph.op_kinds, work_of_ops(graph), strict=True)):
        if plain_kind(kind) in POINTWISE:
            seconds[op] *= flops / machine.flops_per_second / machine.seconds(traffic, flops)
    return seconds
