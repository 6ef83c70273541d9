"""Regions run for real, whole and in chunks, to see whether their results are equal here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import map_nodes, value_of
from lowtide.frameworks.torch.rewrites.chunks.by_rows import ChunkSizes, write_chunks
from lowtide.frameworks.torch.rewrites.chunks.devices import ChunkDevices, can_run
from lowtide.frameworks.torch.rewrites.chunks.products import ProductRegion, outside
from lowtide.frameworks.torch.rewrites.chunks.roles import SUMS
from lowtide.frameworks.torch.rewrites.chunks.rounding import LargestDifference, difference_of, in_other_last_digits

if TYPE_CHECKING:
    from lowtide.frameworks.torch.rewrites.chunks.windows import Windows


class Equal(NamedTuple):
    """Which results of chunks are those of the whole."""

    rows: bool
    """What chunks make of their own rows."""
    sums: bool
    """What is summed over rows."""


_NOTHING_EQUAL = Equal(rows=False, sums=False)


@dataclass(frozen=True, slots=True)
class Trials:
    """Trials of the regions of a program; regions of one form, as those of repeated layers, are tried once."""

    exact: bool = True
    """Whether bits must be equal; else results may differ as sums in another order do."""
    devices: ChunkDevices = ChunkDevices.CPU
    """Where chunks may be."""
    adds: bool = False
    """Whether gradients of weights may be added up in any order, so that whole networks are done by images: not where
    kernels are fused, since chunks run PyTorch's own."""
    _known: dict[tuple[str, ChunkSizes | None], Equal] = field(
        default_factory=dict[tuple[str, ChunkSizes | None], Equal]
    )

    def first_equal(self, region: ProductRegion, tried: Iterable[ChunkSizes]) -> ChunkSizes | None:
        """Return the first of some sizes with which a region gives the results that it gives as a whole, if any does.

        Both run once on random numbers of the real shapes and types, on the real device, with the threads that are set:
        which sums a BLAS makes in the same order is known to nobody else. Takes the memory of the region as a whole,
        and a copy of its results; None where an accelerator has no such memory. Sizes are not tried of which it is
        known that such chunks, or such windows, give other bits. For a device that is not here, the first size is taken
        where rounding is enough, since chunks equal the whole in real numbers.
        """
        sources = outside(region)
        if not all(map(_is_tensor, sources)):
            return None
        if not can_run(value_of(region.product).device):
            return None if self.exact else next(iter(tried), None)
        form, trial = _form_of(region, sources), Trial(region, sources)
        wrong: set[int | Windows] = set()
        for sizes in tried:
            if sizes.rows in wrong or sizes.windows in wrong:
                continue
            known = (form, sizes if self.exact else None)  # to rounding, sizes make no difference
            if known not in self._known:
                self._known[known] = trial.run(sizes, exact=self.exact)
            if all(equal := self._known[known]):
                return sizes
            if not equal.rows:
                wrong.add(sizes.rows)
            elif sizes.windows is not None:
                wrong.add(sizes.windows)
        return None


class Trial:
    """A region on inputs of its own, which are made when they are needed."""

    def __init__(self, region: ProductRegion, sources: list[Node]) -> None:
        self._region, self._sources = region, sources

    @cached_property
    def _run(self) -> tuple[list[torch.Tensor], tuple[torch.Tensor, ...]] | None:
        """Random numbers in the forms of the sources, and what the whole makes of them; None where that is no number.

        A square root or a logarithm takes positive ones alone. Integers may be indices, so that they are 0 or 1.
        """
        whole = _as_module(self._region, self._sources, None)
        for positive in (False, True):
            generator = torch.Generator(value_of(self._region.product).device).manual_seed(0)
            inputs = [_random(value_of(node), generator, positive=positive) for node in self._sources]
            results = whole(*inputs)
            if not any(result.isnan().any() for result in results):
                return inputs, results
        return None

    @cached_property
    def _usual(self) -> list[LargestDifference]:
        """What other last digits of the sources make of the whole's results: of rounding alone, such as the gradient of
        a bias that a norm takes away again, all of it."""
        if self._run is None:
            return []
        inputs, results = self._run
        nudged = _as_module(self._region, self._sources, None)(*map(in_other_last_digits, inputs))
        return list(map(difference_of, results, nudged))

    def run(self, sizes: ChunkSizes, *, exact: bool) -> Equal:
        """Run the region in chunks and compare."""
        try:
            if self._run is None:
                return _NOTHING_EQUAL
            inputs, results = self._run
            chunks = _as_module(self._region, self._sources, sizes)(*inputs)
            are_equal = list(map(_same_bits, results, chunks)) if exact else self._are_near(results, chunks)
        except torch.OutOfMemoryError:
            return _NOTHING_EQUAL
        equal = dict(zip(self._region.kept, are_equal, strict=True))
        sums = self._region.having(*SUMS)
        return Equal(all(equal[node] for node in equal if node not in sums), all(map(equal.__getitem__, sums)))

    def _are_near(self, results: Sequence[torch.Tensor], chunks: Sequence[torch.Tensor]) -> list[bool]:
        differences = list(map(difference_of, results, chunks))
        if all(each.is_rounding for each in differences):
            return [True] * len(differences)
        return [each.is_usual(usual) for each, usual in zip(differences, self._usual, strict=True)]


def _form_of(region: ProductRegion, sources: list[Node]) -> str:
    """Return all that the bits of a region depend on, but for the numbers it is given."""
    names = {node: f"%{place}" for place, node in enumerate([*sources, *region.parts])}
    given = [(value_of(node).shape, value_of(node).stride(), value_of(node).dtype) for node in sources]
    done = [(node.target, *map_nodes((node.args, dict(node.kwargs)), names.__getitem__)) for node in region.parts]
    return repr((region.rows, given, done, [names[node] for node in region.kept]))


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


def _is_tensor(node: Node) -> bool:
    return isinstance(value_of(node), torch.Tensor)


def _random(like: Any, generator: torch.Generator, *, positive: bool) -> torch.Tensor:
    made = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=generator.device)
    if not made.is_floating_point():
        return made.random_(0, 2, generator=generator)
    made.normal_(generator=generator).mul_(like.shape[-1] ** -0.5 if like.dim() else 1)
    return made.abs_() if positive else made
