"""Seconds of every op by three estimates: a kernel per op, pointwise ops fused, arithmetic alone."""

import math

import numpy as np
from numpy.typing import NDArray

from lowtide.costs.flops import ELEMENT_BYTES, estimate_flops, operand_sizes, work_of_ops
from lowtide.costs.kinds import POINTWISE, plain_kind
from lowtide.costs.machine import Machine
from lowtide.costs.prices import carries_costs
from lowtide.graph import Graph


def eager_seconds(graph: Graph, machine: Machine) -> NDArray[np.float64]:
    """Return the seconds of every op as its reader priced it, who knows shapes, else from sizes. O(n + e).

    From sizes: the larger of the time to move the op's buffers and the time for its arithmetic, plus the start of a
    kernel.
    """
    if carries_costs(graph):
        return graph.cost
    return np.array([machine.seconds(traffic, flops) for traffic, flops in work_of_ops(graph)], np.float64)


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
