"""Forms of a model in chunks: choose regions, compare bits, write a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from onnx import ModelProto

from lowtide.core.errors import UnsupportedError
from lowtide.core.files import write_pieces
from lowtide.frameworks.onnx.chunks.choose import Chosen, Fineness, choose_regions
from lowtide.frameworks.onnx.chunks.region import ChunkedRegion
from lowtide.frameworks.onnx.chunks.scans import both_ways, in_chunks
from lowtide.frameworks.onnx.chunks.values import MainValues
from lowtide.frameworks.onnx.loading.external_data import link_weights, place_for_copies
from lowtide.frameworks.onnx.loading.load import drained
from lowtide.frameworks.onnx.operators.nodes import describe_node
from lowtide.frameworks.onnx.reading.translation import Translation
from lowtide.frameworks.onnx.running.children import equal_in_child
from lowtide.frameworks.wire import Content

_FIRST_SCAN_WITHOUT_BATCH = 9


@dataclass(frozen=True, slots=True)
class WrittenChunks:
    """A chunked model."""

    left_whole: tuple[str, ...]
    """Why regions are not in chunks, a sentence each."""
    path: Path | None = None
    """The file, in a folder that the caller deletes, or None."""
    done: str = ""
    """A phrase for the graph's name."""


def write_in_chunks(
    content: Content, model: ModelProto, translation: Translation, folder: Path | None, fineness: Fineness
) -> WrittenChunks:
    """Write a model of fixed sizes, with the regions of `choose_regions` that are bit-equal in chunks.

    A child process runs the model once on random inputs and computes regions both ways. `folder` holds external
    weights.
    """
    values = MainValues(model, translation)
    chosen = choose_regions(values, fineness) if values.opset >= _FIRST_SCAN_WITHOUT_BATCH else []
    if not chosen:
        return WrittenChunks(())
    own = Path(mkdtemp(prefix="lowtide.", dir=place_for_copies(model, folder)))
    found = WrittenChunks(())
    try:
        if folder is not None:
            link_weights(model, folder, own)
        found = _write_equal(content, model, values, chosen, own / "in_chunks.onnx")
    except UnsupportedError as error:
        found = WrittenChunks((f"the whole model: chunks cannot be tried: {error}",))
    finally:
        if found.path is None:
            rmtree(own, ignore_errors=True)
    return found


def _write_equal(
    content: Content, model: ModelProto, values: MainValues, chosen: Sequence[Chosen], path: Path
) -> WrittenChunks:
    equal = _tried(content, model, values, chosen, path.with_name("trial.onnx"))
    left_whole = tuple(
        f"{_name(values, each.region)}: no number of chunks tried gives equal bits"
        for each in chosen
        if each.region not in equal
    )
    if not equal:
        return WrittenChunks(left_whole)
    write_pieces(path, drained(in_chunks(content, model.graph, values, equal)))
    parts = "1 part" if len(equal) == 1 else f"{len(equal)} parts"
    return WrittenChunks(left_whole, path, f"{parts} in up to {max(equal.values())} chunks")


def _tried(
    content: Content, model: ModelProto, values: MainValues, chosen: Sequence[Chosen], path: Path
) -> dict[ChunkedRegion, int]:
    """Return by region the first number of chunks with equal bits."""
    pieces, pairs = both_ways(content, model.graph, values, chosen)
    write_pieces(path, drained(pieces))
    equal = iter(equal_in_child(path, [pair for of_region in pairs for of_chunks in of_region for pair in of_chunks]))
    path.unlink()
    found: dict[ChunkedRegion, int] = {}
    for each, of_region in zip(chosen, pairs, strict=True):
        for chunks, of_chunks in zip(each.chunks, of_region, strict=True):
            agree = [next(equal) for _ in of_chunks]
            if all(agree):
                found.setdefault(each.region, chunks)
    return found


def _name(values: MainValues, region: ChunkedRegion) -> str:
    neediest = max(region.nodes, key=values.needed)
    return describe_node(values.nodes[neediest], neediest)
