"""The fused profile: pointwise ops melt into the kernels around them."""

import numpy as np
from numpy.typing import NDArray

from lowtide.costs.eager import eager_seconds
from lowtide.costs.flops import estimate_flops
from lowtide.costs.kinds import POINTWISE, plain_kind
from lowtide.costs.machine import Machine
from lowtide.graph import Graph


def fused_seconds(graph: Graph, machine: Machine) -> NDArray[np.float64]:
    """Return the seconds of every op when a compiler fuses pointwise ops with their neighbors. O(n + e).

    A pointwise op costs its arithmetic only: it starts no kernel and what it reads is there already. All others cost
    what they cost eagerly.
    """
    seconds = eager_seconds(graph, machine).copy()
    sizes = graph.sizes
    for op, kind in enumerate(graph.op_kinds):
        if plain_kind(kind) in POINTWISE:
            results: list[int] = sizes[graph.writes[op]].tolist()
            seconds[op] = min(seconds[op], estimate_flops(kind, (), results) / machine.flops_per_second)
    return seconds
