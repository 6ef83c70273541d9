"""Seconds of every op by three estimates: a kernel per op, pointwise ops fused, arithmetic alone."""

import math

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.costs.collectives import sent_bytes
from lowtide.engine.costs.flops import ELEMENT_BYTES, estimate_flops, operand_sizes, work_of_ops
from lowtide.engine.costs.kinds import NEVER_FUSED, POINTWISE, plain_kind
from lowtide.engine.costs.machine import PLAIN_MACHINE, Machine
from lowtide.engine.costs.prices import carries_costs
from lowtide.engine.graph import Graph


def eager_seconds(graph: Graph, machine: Machine) -> NDArray[np.float64]:
    """Return the seconds of every op: what the graph's reader counted, priced on the machine. O(n + e).

    It is the start of a kernel plus the larger of two times: to move what the op reads and writes, and to compute. A
    collective takes its start and what it sends. What a reader priced and did not count keeps its price, and on the
    plain machine all do, for which readers price. In a graph without prices, work is estimated from sizes.
    """
    priced = carries_costs(graph)
    if priced and machine is PLAIN_MACHINE:
        return graph.cost
    keeps = np.isnan(graph.traffic) if priced else np.zeros(graph.n_ops, np.bool_)
    columns = zip(graph.op_kinds, work_of_ops(graph), graph.ranks.tolist(), graph.rank_spans.tolist(), strict=True)
    seconds = [
        machine.seconds(traffic, flops)
        if ranks == 1
        else machine.collective_seconds(sent_bytes(kind, traffic, ranks), span)
        for kind, (traffic, flops), ranks, span in columns
    ]
    return np.where(keeps, graph.cost, seconds)


def fused_seconds(graph: Graph, machine: Machine) -> NDArray[np.float64]:
    """Return the seconds of every op when a compiler fuses pointwise ops with their neighbors. O(n + e).

    A pointwise op keeps only the share of its arithmetic: it starts no kernel, and what it reads is there already.
    Where a product or a convolution reads what it makes, it keeps the share of writing that if it is larger: these are
    kernels of their own, which read memory. Any other op keeps its eager price. Shares are those on `machine`, so that
    prices for another machine shrink alike.
    """
    seconds = eager_seconds(graph, machine).copy()
    kinds = [plain_kind(kind) for kind in graph.op_kinds]
    stored = np.zeros(graph.n_buffers, np.bool_)
    for op, kind in enumerate(kinds):
        if kind in NEVER_FUSED:
            stored[graph.reads[op]] = True
    for op, (kind, (traffic, flops)) in enumerate(zip(kinds, work_of_ops(graph), strict=True)):
        if kind in POINTWISE:
            written = graph.writes[op]
            moved = int(graph.sizes[written[stored[written]]].sum())
            needed = max(flops / machine.flops_per_second, moved / machine.bytes_per_second)
            seconds[op] *= needed / machine.seconds(traffic, flops)
    return seconds


def arithmetic_seconds(graph: Graph, machine: Machine) -> NDArray[np.float64]:
    """Return the seconds that every op's floating-point operations take; memory traffic and starts are free. O(n + e).

    Operations are those that the graph's reader counted, else they are estimated from sizes. An op of unknown kind,
    such as a copy, counts as one operation per four bytes it writes: if it were free, it would run again in vain.
    """
    counted: list[float] = graph.flops.tolist()
    for op, (read, written) in enumerate(operand_sizes(graph)):
        if math.isnan(counted[op]):
            counted[op] = estimate_flops(graph.op_kinds[op], read, written) or sum(written) / ELEMENT_BYTES
    return np.asarray(counted, np.float64) / machine.flops_per_second
