"""What every op of a graph moves and computes, from sizes."""

from collections.abc import Iterator

from lowtide.costs.flops import estimate_flops
from lowtide.graph import Graph


def work_of_ops(graph: Graph) -> Iterator[tuple[int, float]]:
    """Iterate (bytes moved, floating-point operations) of all ops; what an op reads, writes or mutates moves once."""
    sizes: list[int] = graph.sizes.tolist()
    for kind, reads, writes, mutates in zip(graph.op_kinds, graph.reads, graph.writes, graph.mutates, strict=True):
        read = [sizes[buffer] for buffer in dict.fromkeys(reads)]
        written = [sizes[buffer] for buffer in dict.fromkeys([*writes, *mutates])]
        yield sum(read) + sum(written), estimate_flops(kind, read, written)
