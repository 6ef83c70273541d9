"""A captured program with its largest products, updates and loss gradient in chunks, under a name that says so."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule

from lowtide.frameworks.torch.internals.hints import is_symbolic
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.rewrites.chunks.by_rows import ChunkSizes, ProductsByRows
from lowtide.frameworks.torch.rewrites.chunks.choose_chunks import choose_chunks, choose_rows
from lowtide.frameworks.torch.rewrites.chunks.in_chunks import InChunks
from lowtide.frameworks.torch.rewrites.chunks.loss_gradient import LossGradientByRows
from lowtide.frameworks.torch.rewrites.chunks.products import ProductRegion, Refusal, TwoPasses
from lowtide.frameworks.torch.rewrites.chunks.row_losses import LossesOfRows
from lowtide.frameworks.torch.rewrites.chunks.rows_again import RowsAgain
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.graph import Lifetime


@dataclass(frozen=True, slots=True)
class SplitProgram:
    """A program in chunks, and what of it is not."""

    captured: Captured | None
    """The program with equal bits; None where no chunks are worth it."""
    left_whole: tuple[str, ...]
    """Large products that are computed as a whole, and why, a sentence each."""


@dataclass(frozen=True, slots=True)
class _ByRows:
    """A program before its products are cut, and how each is to be."""

    module: GraphModule
    rows: Mapping[ProductRegion, ChunkSizes]
    refused: Sequence[Refusal]

    @property
    def left_whole(self) -> tuple[str, ...]:
        """What is refused, and why."""
        return tuple(f"'{each.product.name}' is computed as a whole: {each.reason}" for each in self.refused)

    def in_chunks(self) -> GraphModule:
        """Return the program with its products in chunks."""
        return run_rewrites(self.module, [ProductsByRows(tuple(self.rows.items()))])


def split_updates(captured: Captured) -> SplitProgram:
    """Return the program with its largest products, updates and the gradient of its loss in chunks."""
    return _split(captured, _by_rows(captured.graph_module, [LossesOfRows()], captured.inputs), [])


def split_forward(
    module: GraphModule, inputs: Sequence[tuple[str, Lifetime]]
) -> tuple[GraphModule | None, tuple[str, ...]]:
    """Return a forward pass with its largest products in chunks, and what of it is not.

    None where no chunks are worth it, and for dynamic sizes, which a trial cannot have.
    """
    values = map(value_of, module.graph.find_nodes(op="placeholder"))
    if any(not isinstance(value, torch.Tensor) or is_symbolic(value) for value in values):
        return None, ()
    by_rows = _by_rows(module, [LossesOfRows()], inputs)
    return by_rows.in_chunks() if by_rows.rows else None, by_rows.left_whole


def split_again(captured: Captured) -> SplitProgram | None:
    """Return the same with rows of some products computed twice, so that they can be cut; it takes time.

    None where that is of no use. What is computed again in vain, since its second pass stays whole, is left as it was.
    """
    whole = _by_rows(captured.graph_module, [LossesOfRows()], captured.inputs)
    useful: list[TwoPasses] = [refusal.passes for refusal in whole.refused if refusal.passes is not None]
    while useful:
        twice = _by_rows(whole.module, [RowsAgain(tuple(useful))], captured.inputs)
        cut = {node.name for region in twice.rows for node in region.parts}
        kept = [passes for passes in useful if cut.issuperset(passes.readers)]
        if len(kept) == len(useful):
            return _split(captured, twice, ["rows computed twice"])
        useful = kept
    return None


def _by_rows(module: GraphModule, rewrites: Sequence[Rewrite[Any]], inputs: Sequence[tuple[str, Lifetime]]) -> _ByRows:
    rewritten = run_rewrites(module, rewrites)
    return _ByRows(rewritten, *choose_rows(rewritten, inputs))


def _split(captured: Captured, by_rows: _ByRows, done: list[str]) -> SplitProgram:
    """Return the program in chunks, under a name that says what is done in how many."""
    rows, module = by_rows.rows, captured.graph_module
    if rows:
        module = by_rows.in_chunks()
        most = max(-(-region.rows.count // sizes.rows) for region, sizes in rows.items())
        done.append(f"{'the largest product' if len(rows) == 1 else f'{len(rows)} products'} in {most} chunks")
    loss = LossGradientByRows()
    if loss.sites(module):
        module = run_rewrites(module, [loss])
        done.append("the gradient of the loss by rows")
    chosen = choose_chunks(module, captured.inputs)
    if chosen:
        module = run_rewrites(module, [InChunks(tuple(chosen.items()))])
        most = max(-(-region.shape[0] // rows) for region, rows in chosen.items())
        done.append(f"{'the largest update' if len(chosen) == 1 else f'{len(chosen)} updates'} in {most} chunks")
    left = by_rows.left_whole
    if not done:
        return SplitProgram(None, left)
    name, unmodeled = ", ".join([captured.name, *done]), (*captured.unmodeled, *left)
    return SplitProgram(replace(captured, name=name, graph_module=module, unmodeled=unmodeled), left)
