"""A captured program with its largest updates and the gradient of its loss in chunks, under a name that says so."""

from dataclasses import replace

from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.rewrites.chunks.choose_chunks import choose_chunks
from lowtide.frameworks.torch.rewrites.chunks.in_chunks import InChunks
from lowtide.frameworks.torch.rewrites.chunks.loss_gradient import LossGradientByRows
from lowtide.frameworks.torch.rewrites.run import run_rewrites


def split_updates(captured: Captured) -> Captured | None:
    """Return the program with its largest updates and the gradient of its loss in chunks of rows, or None.

    None where none is worth it. Results are equal bit for bit.
    """
    loss = LossGradientByRows()
    module, done = captured.graph_module, list[str]()
    if loss.sites(module):
        module = run_rewrites(module, [loss])
        done.append("the gradient of the loss by rows")
    chosen = choose_chunks(module, captured.inputs)
    if chosen:
        module = run_rewrites(module, [InChunks(tuple(chosen.items()))])
        most = max(-(-region.shape[0] // rows) for region, rows in chosen.items())
        done.append(f"{'the largest update' if len(chosen) == 1 else f'{len(chosen)} updates'} in {most} chunks")
    return replace(captured, name=", ".join([captured.name, *done]), graph_module=module) if done else None
