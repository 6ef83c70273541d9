"""External data: files with weights."""

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from onnx import GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

from lowtide.core.errors import InputError, MalformedInputError, UnsupportedError
from lowtide.frameworks.onnx.operators.nodes import subgraphs_of


def external_locations(model: ModelProto) -> list[str]:
    """Return a model's external files, relative to its folder."""
    tensors = chain(
        _graph_tensors(model.graph),
        (tensor for function in model.functions for tensor in _node_tensors(function.node)),
        (tensor for info in model.training_info for tensor in _graph_tensors(info.initialization)),
        (tensor for info in model.training_info for tensor in _graph_tensors(info.algorithm)),
    )
    external = (tensor for tensor in tensors if tensor.data_location == TensorProto.EXTERNAL)
    return list(dict.fromkeys(map(_location, external)))


def check_weights_present(model: ModelProto, folder: Path | None) -> None:
    """Raise InputError for missing weight files, UnsupportedError without a folder."""
    locations = external_locations(model)
    if locations and folder is None:
        raise UnsupportedError(f"the model has weights in {', '.join(locations)}, but no folder; give its path instead")
    missing = [location for location in locations if folder is not None and not (folder / location).is_file()]
    if missing:
        raise InputError(f"weights are missing: {', '.join(missing)}; put them in {folder}")


def check_weights_reachable(model: ModelProto, source: Path | None, target: Path) -> None:
    """Raise UnsupportedError unless a copy of the model in `target` finds its weights."""
    for location in external_locations(model):
        there = target / location
        if there.is_file() if source is None else _same_file(source / location, there):
            continue
        where = f"{source} has" if source is not None else "the model refers to"
        raise UnsupportedError(
            f"{where} weights in {location!r}, but {target} does not; write the model beside its weights, or link "
            "them first"
        )


def folder_for_copies(model: ModelProto, source: Path | None) -> Path:
    """Return a new folder for copies of the model, with links to its weights.

    Hard links work within a file system; the runtime follows no others.
    """
    is_beside = source is not None and external_locations(model) and os.access(source, os.W_OK)
    folder = Path(mkdtemp(prefix="lowtide.", dir=source if is_beside else None))
    try:
        if source is not None:
            _link_weights(model, source, folder)
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    return folder


@contextmanager
def temporary_folder(model: ModelProto, source: Path | None) -> Generator[Path]:
    folder = folder_for_copies(model, source)
    try:
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)


def _link_weights(model: ModelProto, source: Path, target: Path) -> None:
    for location in external_locations(model):
        place = target / location
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source / location, place)
        except OSError:  # another file system, or a missing file, which the runtime reports
            place.symlink_to((source / location).absolute())


def remove_links(model: ModelProto, folder: Path) -> None:
    """Remove a folder's links to weights: onnx refuses to load weights that have a second hard link."""
    for location in external_locations(model):
        (folder / location).unlink(missing_ok=True)


def _same_file(one: Path, other: Path) -> bool:
    return one.absolute() == other.absolute() or (one.exists() and other.exists() and one.samefile(other))


def _location(tensor: TensorProto) -> str:
    location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    if not location or Path(location).is_absolute() or ".." in Path(location).parts:
        raise MalformedInputError(
            f"tensor {tensor.name!r} has its data in {location!r}; it must be a file in the model's folder"
        )
    return location


def _graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    yield from _sparse_tensors(graph.sparse_initializer)
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:  # an absent tensor reads as an empty one
            yield from (attribute.t, *attribute.tensors)
            yield from _sparse_tensors((attribute.sparse_tensor, *attribute.sparse_tensors))
        for _, graph in subgraphs_of(node):
            yield from _graph_tensors(graph)


def _sparse_tensors(tensors: Iterable[SparseTensorProto]) -> Iterator[TensorProto]:
    for tensor in tensors:
        yield tensor.values
        yield tensor.indices
