"""Trials that compare product regions with and without chunks (`Trials`)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import map_arguments, value_of
from lowtide.frameworks.torch.rewrites.chunks.chunk_products import ChunkSizes, append_chunks
from lowtide.frameworks.torch.rewrites.chunks.product_region import ChunkDevices, ProductRegion, can_run
from lowtide.frameworks.torch.rewrites.chunks.rounding import LargestDifference, difference_of, in_other_last_digits
from lowtide.frameworks.torch.rewrites.chunks.rule import SUMS

if TYPE_CHECKING:
    from lowtide.frameworks.torch.rewrites.chunks.windows import Windows


class Equal(NamedTuple):
    """Which results of chunks equal those without."""

    rows: bool
    sums: bool


_NOTHING_EQUAL = Equal(rows=False, sums=False)


@dataclass(frozen=True, slots=True)
class Trials:
    """Trials of a program's regions. Equal regions, such as repeated layers, are tried once."""

    exact: bool = True
    devices: ChunkDevices = ChunkDevices.CPU
    any_order: bool = False
    """Whether chunks may add to sums in any order, so that regions may be whole image networks.

    Not for fused kernels: chunks run PyTorch's own.
    """
    only_on_cpu: bool = False
    """Whether other devices get the first sizes untried. A trial would need the memory of the whole product."""
    _known: dict[tuple[str, ChunkSizes | None], Equal] = field(
        default_factory=dict[tuple[str, ChunkSizes | None], Equal]
    )

    def first_equal(self, region: ProductRegion, tried: Iterable[ChunkSizes]) -> ChunkSizes | None:
        """Return the first chunk sizes with equal results, if any.

        Each trial runs once on random numbers of the real shapes, with the real device and threads: only a run shows
        the order of a BLAS's sums. Allocates the region without chunks; returns None if that fails. Without a trial,
        returns the first sizes if rounding is allowed, else None.
        """
        sources = region.sources
        if not all(isinstance(value_of(source), torch.Tensor) for source in sources):
            return None
        if not self._can_run(value_of(region.product).device):
            return None if self.exact else next(iter(tried), None)
        key, trial = _key_of(region, sources), Trial(region, sources)
        unequal: set[int | Windows] = set()
        for sizes in tried:
            if sizes.rows in unequal or sizes.windows in unequal:
                continue
            known = (key, sizes if self.exact else None)  # rounding does not depend on sizes
            if known not in self._known:
                self._known[known] = trial.run(sizes, exact=self.exact)
            if all(equal := self._known[known]):
                return sizes
            if not equal.rows:
                unequal.add(sizes.rows)
            elif sizes.windows is not None:
                unequal.add(sizes.windows)
        return None

    def _can_run(self, device: torch.device) -> bool:
        return can_run(device) and (device.type == "cpu" or not self.only_on_cpu)


class Trial:
    """A region with random inputs."""

    def __init__(self, region: ProductRegion, sources: list[Node]) -> None:
        self._region, self._sources = region, sources

    @cached_property
    def _unchunked(self) -> tuple[list[torch.Tensor], tuple[torch.Tensor, ...]] | None:
        """Inputs and results without chunks, or None if results are not numbers.

        Integers may be indices, so they are 0 or 1.
        """
        module = _as_module(self._region, self._sources, None)
        for positive in (False, True):
            generator = torch.Generator(value_of(self._region.product).device).manual_seed(0)
            inputs = [_random(value_of(node), generator, positive=positive) for node in self._sources]
            results = module(*inputs)
            if not any(result.isnan().any() for result in results):
                return inputs, results
        return None

    @cached_property
    def _noise(self) -> list[LargestDifference]:
        """The change of each result if all inputs change in their last digits.

        Some results are rounding errors only, such as a bias gradient that a norm cancels.
        """
        if self._unchunked is None:
            return []
        inputs, results = self._unchunked
        changed = _as_module(self._region, self._sources, None)(*map(in_other_last_digits, inputs))
        return list(map(difference_of, results, changed))

    def run(self, sizes: ChunkSizes, *, exact: bool) -> Equal:
        try:
            if self._unchunked is None:
                return _NOTHING_EQUAL
            inputs, results = self._unchunked
            chunks = _as_module(self._region, self._sources, sizes)(*inputs)
            are_equal = list(map(_are_bit_equal, results, chunks)) if exact else self._are_near(results, chunks)
        except torch.OutOfMemoryError:
            return _NOTHING_EQUAL
        equal = dict(zip(self._region.results, are_equal, strict=True))
        sums = self._region.with_role(*SUMS)
        return Equal(all(equal[node] for node in equal if node not in sums), all(map(equal.__getitem__, sums)))

    def _are_near(self, results: Sequence[torch.Tensor], chunks: Sequence[torch.Tensor]) -> list[bool]:
        differences = list(map(difference_of, results, chunks))
        if all(each.is_rounding for each in differences):
            return [True] * len(differences)
        return [each.is_within_noise(noise) for each, noise in zip(differences, self._noise, strict=True)]


def _key_of(region: ProductRegion, sources: list[Node]) -> str:
    names = {node: f"%{place}" for place, node in enumerate([*sources, *region.ops])}
    given = [(value_of(node).shape, value_of(node).stride(), value_of(node).dtype) for node in sources]
    done = [(node.target, *map_arguments(node, names.__getitem__)) for node in region.ops]
    return repr((region.rows, given, done, [names[node] for node in region.results]))


def _are_bit_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def _as_module(region: ProductRegion, sources: list[Node], sizes: ChunkSizes | None) -> GraphModule:
    graph = Graph()
    made = {node: graph.placeholder(node.name) for node in sources}
    if sizes is None:
        for node in region.ops:
            made[node] = graph.node_copy(node, made.__getitem__)
    else:
        append_chunks(graph, region, sizes, made)
    graph.output(tuple(made[node] for node in region.results))
    return GraphModule(torch.nn.Module(), graph)


def _random(like: Any, generator: torch.Generator, *, positive: bool) -> torch.Tensor:
    extent = 1 + sum((size - 1) * stride for size, stride in zip(like.shape, like.stride(), strict=True))
    made = torch.empty(max(extent, 0), dtype=like.dtype, device=generator.device)
    if not made.is_floating_point():
        made.random_(0, 2, generator=generator)
    else:
        made.normal_(generator=generator).mul_(like.shape[-1] ** -0.5 if like.dim() else 1)
        made = made.abs_() if positive else made
    return made.as_strided(like.shape, like.stride())
