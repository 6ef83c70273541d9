"""What ops move and compute, from sizes alone: floating-point operations where the kind of an op allows it."""

import math
from collections.abc import Iterator, Sequence

from lowtide.engine.costs.kinds import CONVOLUTION, CONVOLUTION_BACKWARD, MATRIX_PRODUCT, POINTWISE, plain_kind
from lowtide.engine.graph import Graph

ELEMENT_BYTES = 4
"""Sizes are all a graph knows; elements are taken for single precision."""
_KERNEL_AREA = 9


def estimate_flops(kind: str, reads: Sequence[int], writes: Sequence[int]) -> float:
    """Estimate what an op computes from the sizes of what it reads and writes, in bytes and in argument order.

    Exact for a product of two matrices, whose three sizes determine its dimensions, and for a convolution with a bias.
    A convolution without a bias is taken for one with a 3 x 3 kernel and stride 1. A batched product is overestimated
    by the square root of the batch. Ops of unknown kind compute nothing.
    """
    name = plain_kind(kind)
    results = [size / ELEMENT_BYTES for size in writes if size]
    operands = [size / ELEMENT_BYTES for size in reads]
    if not results:
        return 0.0
    if name in POINTWISE:
        return sum(results)
    if name in MATRIX_PRODUCT and operands:
        largest = sorted(operands, reverse=True)
        return 2.0 * math.sqrt(largest[0] * largest[min(1, len(largest) - 1)] * max(results))
    if name in CONVOLUTION and len(operands) > 1:
        return _convolution(operands[0], operands[1], results[0], operands[2] if len(operands) > 2 else 0.0)
    if name in CONVOLUTION_BACKWARD and len(operands) > 2:
        return 2.0 * _convolution(operands[1], operands[2], operands[0], 0.0)
    return 0.0


def _convolution(source: float, weight: float, result: float, channels: float) -> float:
    """Return 2 * elements of the result * elements of one filter; a filter is the weight of one output channel."""
    if not channels:
        channels = math.sqrt(weight * result / (_KERNEL_AREA * source)) if source else 1.0
    return 2.0 * result * weight / max(1.0, channels)


def work_of_ops(graph: Graph) -> Iterator[tuple[int, float]]:
    """Iterate (bytes moved, floating-point operations) of all ops, as counted by who made the graph, else estimated.

    By the estimate, what an op reads, writes or mutates moves once, as a whole.
    """
    counted = zip(graph.traffic.tolist(), graph.flops.tolist(), strict=True)
    for kind, (read, written), (traffic, flops) in zip(graph.op_kinds, operand_sizes(graph), counted, strict=True):
        yield (
            sum(read) + sum(written) if math.isnan(traffic) else int(traffic),
            estimate_flops(kind, read, written) if math.isnan(flops) else flops,
        )


def operand_sizes(graph: Graph) -> Iterator[tuple[list[int], list[int]]]:
    """Iterate (bytes of each buffer that is read, of each that is written or mutated) of all ops, each buffer once."""
    sizes: list[int] = graph.sizes.tolist()
    for reads, writes, mutates in zip(graph.reads, graph.writes, graph.mutates, strict=True):
        read = [sizes[buffer] for buffer in dict.fromkeys(reads)]
        yield read, [sizes[buffer] for buffer in dict.fromkeys([*writes, *mutates])]
