"""Regions run for real, whole and in chunks, to see whether their bits are equal here."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.rewrites.chunks.by_rows import ChunkSizes, write_chunks
from lowtide.frameworks.torch.rewrites.chunks.products import ProductRegion, outside


def first_equal(region: ProductRegion, tried: Iterable[ChunkSizes]) -> ChunkSizes | None:
    """Return the first of some sizes with which a region gives the bits that it gives as a whole, if any does.

    Both run once on random numbers of the real shapes and types, with the threads that are set: which sums a BLAS makes
    in the same order is known to nobody else. Takes the memory of the region as a whole, and a copy of its results.
    """
    sources = outside(region)
    inputs = _inputs(sources)
    if inputs is None:
        return None
    whole = _as_module(region, sources, None)(*inputs)
    for sizes in tried:
        chunks = _as_module(region, sources, sizes)(*inputs)
        if all(map(_same_bits, whole, chunks)):
            return sizes
    return None


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def _as_module(region: ProductRegion, sources: list[Node], sizes: ChunkSizes | None) -> GraphModule:
    graph = Graph()
    made = {node: graph.placeholder(node.name) for node in sources}
    if sizes is None:
        for node in region.parts:
            made[node] = graph.node_copy(node, made.__getitem__)
    else:
        write_chunks(graph, region, sizes, made)
    graph.output(tuple(made[node] for node in region.kept))
    return GraphModule(torch.nn.Module(), graph)


def _inputs(sources: list[Node]) -> list[torch.Tensor] | None:
    """Return random numbers in the forms of nodes; integers may be indices, so that they are 0 or 1."""
    generator = torch.Generator().manual_seed(0)
    return [_random(value_of(node), generator) for node in sources] if all(map(_is_tensor, sources)) else None


def _is_tensor(node: Node) -> bool:
    return isinstance(value_of(node), torch.Tensor)


def _random(like: Any, generator: torch.Generator) -> torch.Tensor:
    made = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
    if not made.is_floating_point():
        return made.random_(0, 2, generator=generator)
    return made.normal_(generator=generator).mul_(like.shape[-1] ** -0.5 if like.dim() else 1)
