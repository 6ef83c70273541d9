"""What every op of a graph moves and computes, from sizes."""

from collections.abc import Iterator

from lowtide.costs.flops import estimate_flops
from lowtide.graph import Graph


def work_of_ops(graph: Graph) -> Iterator[tuple[int, float]]:
    """Iterate (bytes moved, floating-point operations) of all ops; what an op reads, writes or mutates moves once."""
    for kind, (read, written) in zip(graph.op_kinds, operand_sizes(graph), strict=True):
        yield sum(read) + sum(written), estimate_flops(kind, read, written)


def operand_sizes(graph: Graph) -> Iterator[tuple[list[int], list[int]]]:
    """Iterate (bytes of each buffer that is read, of each that is written or mutated) of all ops, each buffer once."""
    sizes: list[int] = graph.sizes.tolist()
    for reads, writes, mutates in zip(graph.reads, graph.writes, graph.mutates, strict=True):
        read = [sizes[buffer] for buffer in dict.fromkeys(reads)]
        yield read, [sizes[buffer] for buffer in dict.fromkeys([*writes, *mutates])]
