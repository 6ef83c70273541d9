"""A captured program with the updates of its largest tensors done in chunks, under a name that says so."""

from dataclasses import replace

from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.rewrites.chunks.choose_chunks import choose_chunks
from lowtide.frameworks.torch.rewrites.chunks.in_chunks import InChunks
from lowtide.frameworks.torch.rewrites.run import run_rewrites


def split_updates(captured: Captured) -> Captured | None:
    """Return the program with the updates of its largest tensors done in chunks of rows; None where none is worth it.

    Results are equal bit for bit.
    """
    chosen = choose_chunks(captured.graph_module, captured.inputs)
    if not chosen:
        return None
    most = max(-(-region.shape[0] // rows) for region, rows in chosen.items())
    updates = "the largest update" if len(chosen) == 1 else f"{len(chosen)} updates"
    return replace(
        captured,
        name=f"{captured.name}, {updates} in {most} chunks",
        graph_module=run_rewrites(captured.graph_module, [InChunks(tuple(chosen.items()))]),
    )
