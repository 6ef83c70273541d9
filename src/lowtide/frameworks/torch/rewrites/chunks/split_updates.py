"""A captured program with its largest products, updates and loss gradient in chunks, under a name that says so."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch.fx import GraphModule

from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.rewrites.chunks.by_rows import ChunkSizes, ProductsByRows
from lowtide.frameworks.torch.rewrites.chunks.choose_chunks import choose_chunks, choose_rows
from lowtide.frameworks.torch.rewrites.chunks.in_chunks import InChunks
from lowtide.frameworks.torch.rewrites.chunks.loss_gradient import LossGradientByRows
from lowtide.frameworks.torch.rewrites.chunks.products import ProductRegion, Refusal
from lowtide.frameworks.torch.rewrites.chunks.row_losses import LossesOfRows
from lowtide.frameworks.torch.rewrites.chunks.rows_again import RowsAgain
from lowtide.frameworks.torch.rewrites.run import run_rewrites


def split_updates(captured: Captured, *, again: bool = False) -> Captured | None:
    """Return the program with its largest products, updates and the gradient of its loss in chunks, or None.

    None where none is worth it. Results are equal bit for bit; products that are left whole all the same are named
    in `unmodeled`. With `again`, rows of products may be computed twice so that a product can be cut, which takes time;
    None then where that is of no use.
    """
    module, done = captured.graph_module, list[str]()
    summed = run_rewrites(module, [LossesOfRows()])
    rows, refused = choose_rows(summed, captured.inputs)
    if again:
        twice = _computed_again(summed, captured, refused)
        if twice is None:
            return None
        summed, rows, refused = twice
        done.append("rows computed twice")
    if rows:
        module = run_rewrites(summed, [ProductsByRows(tuple(rows.items()))])
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
    if not done:
        return None
    notes = tuple(f"'{refusal.product.name}' is computed as a whole: {refusal.reason}" for refusal in refused)
    name, unmodeled = ", ".join([captured.name, *done]), (*captured.unmodeled, *notes)
    return replace(captured, name=name, graph_module=module, unmodeled=unmodeled)


_Chosen = tuple[GraphModule, Mapping[ProductRegion, ChunkSizes], Sequence[Refusal]]


def _computed_again(module: GraphModule, captured: Captured, refused: Sequence[Refusal]) -> _Chosen | None:
    """Return the program with second passes over those products that can be cut then, None without such.

    What is computed again in vain, since its second pass stays whole, is left as it was.
    """
    useful = [refusal for refusal in refused if refusal.passes is not None]
    while useful:
        twice = run_rewrites(module, [RowsAgain(tuple(refusal.passes for refusal in useful if refusal.passes))])
        rows, left = choose_rows(twice, captured.inputs)
        cut = {node.name for region in rows for node in region.parts}
        kept = [refusal for refusal in useful if refusal.passes and cut.issuperset(map(str, refusal.passes.second))]
        if len(kept) == len(useful):
            return twice, rows, left
        useful = kept
    return None
