"""A captured program with its largest products, updates and loss gradient in chunks, under a name that says so."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch.fx import GraphModule

from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.rewrites.chunks.by_rows import ChunkSizes, ProductsByRows
from lowtide.frameworks.torch.rewrites.chunks.choose_chunks import choose_chunks, choose_rows
from lowtide.frameworks.torch.rewrites.chunks.in_chunks import InChunks
from lowtide.frameworks.torch.rewrites.chunks.loss_gradient import LossGradientByRows
from lowtide.frameworks.torch.rewrites.chunks.products import ProductRegion, Refusal, TwoPasses
from lowtide.frameworks.torch.rewrites.chunks.row_losses import LossesOfRows
from lowtide.frameworks.torch.rewrites.chunks.rows_again import RowsAgain
from lowtide.frameworks.torch.rewrites.run import run_rewrites


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


def split_updates(captured: Captured) -> SplitProgram:
    """Return the program with its largest products, updates and the gradient of its loss in chunks."""
    return _split(captured, _by_rows(run_rewrites(captured.graph_module, [LossesOfRows()]), captured), [])


def split_again(captured: Captured) -> SplitProgram | None:
    """Return the same with rows of some products computed twice, so that they can be cut; it takes time.

    None where that is of no use. What is computed again in vain, since its second pass stays whole, is left as it was.
    """
    whole = _by_rows(run_rewrites(captured.graph_module, [LossesOfRows()]), captured)
    useful: list[TwoPasses] = [refusal.passes for refusal in whole.refused if refusal.passes is not None]
    while useful:
        twice = _by_rows(run_rewrites(whole.module, [RowsAgain(tuple(useful))]), captured)
        cut = {node.name for region in twice.rows for node in region.parts}
        kept = [passes for passes in useful if cut.issuperset(passes.readers)]
        if len(kept) == len(useful):
            return _split(captured, twice, ["rows computed twice"])
        useful = kept
    return None


def _by_rows(module: GraphModule, captured: Captured) -> _ByRows:
    return _ByRows(module, *choose_rows(module, captured.inputs))


def _split(captured: Captured, by_rows: _ByRows, done: list[str]) -> SplitProgram:
    """Return the program in chunks, under a name that says what is done in how many."""
    rows, module = by_rows.rows, captured.graph_module
    if rows:
        module = run_rewrites(by_rows.module, [ProductsByRows(tuple(rows.items()))])
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
    left = tuple(f"'{each.product.name}' is computed as a whole: {each.reason}" for each in by_rows.refused)
    if not done:
        return SplitProgram(None, left)
    name, unmodeled = ", ".join([captured.name, *done]), (*captured.unmodeled, *left)
    return SplitProgram(replace(captured, name=name, graph_module=module, unmodeled=unmodeled), left)
