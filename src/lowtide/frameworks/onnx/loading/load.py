"""Load ONNX models, and metadata of written ones."""

import math
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import cast

from google.protobuf.message import DecodeError, EncodeError
from onnx import ModelProto

from lowtide.core.errors import LowtideError, MalformedInputError, UnsupportedError, UsageError
from lowtide.core.files import mapped_bytes
from lowtide.frameworks.onnx.loading import fields as of
from lowtide.frameworks.onnx.operators.nodes import plain
from lowtide.frameworks.onnx.shapes.tensors import MOST_ELEMENTS
from lowtide.frameworks.wire import BYTES, Content, WireError, encode_bytes, fields, read_varint

ModelSource = str | os.PathLike[str] | ModelProto


def load_model(source: ModelSource) -> ModelProto:
    """Return a path's model without weights, or the object itself.

    Raises MalformedInputError for another kind of file, InputError for an unreadable one, UsageError for another
    object.
    """
    if isinstance(source, ModelProto):
        model, where = source, "the model"
    else:
        model, where = _parse(whole_content(source), _path_of(source)), str(source)
    if not model.HasField("graph"):
        raise MalformedInputError(f"{where} has no graph; it is no ONNX model, or its export was cut short")
    if model.ir_version >= 3 and not model.opset_import:
        raise MalformedInputError(f"{where} names no operator set (opset_import); export it again")
    return model


def whole_content(source: ModelSource) -> Content:
    """Return a model's bytes with weights; raises UnsupportedError for an object too large for a file."""
    if isinstance(source, ModelProto):
        return serialize(source, describe_source(source))
    return mapped_bytes(_path_of(source))


def load_whole_model(source: ModelSource) -> ModelProto:
    if isinstance(source, ModelProto):
        return source
    return ModelProto.FromString(cast("bytes", whole_content(source)))


def source_folder(source: ModelSource) -> Path | None:
    return None if isinstance(source, ModelProto) else Path(source).parent


def describe_source(source: ModelSource) -> str:
    return f"model {source.graph.name!r}" if isinstance(source, ModelProto) else plain(str(source))


def serialize(model: ModelProto, name: str) -> bytes:
    """Return a model's bytes; raise UnsupportedError above 2 GiB."""
    try:
        return model.SerializeToString()
    except (EncodeError, ValueError):
        raise UnsupportedError(f"{name} is larger than 2 GiB; move its weights to external data first") from None


def _path_of(source: str | os.PathLike[str]) -> Path:
    try:
        return Path(source)
    except TypeError:
        kind = type(source).__name__
        raise UsageError(f"cannot read a {kind} as an ONNX model; give a path or a ModelProto") from None


def _parse(content: Content, path: Path) -> ModelProto:
    if not content:
        raise MalformedInputError(f"{path} is empty; it is no ONNX model")
    try:
        if sum(number == of.GRAPH for number, *_ in fields(content, 0, len(content))) > 1:
            raise MalformedInputError(f"{path} holds several graphs, which no exporter writes; export it again")
        return ModelProto.FromString(light_model(content))
    except (DecodeError, WireError):
        raise MalformedInputError(
            f"{path} is no ONNX model, or is damaged or cut short: protobuf cannot decode it"
        ) from None


_SURELY_SHORT = 1024
"""Shorter fields are copied unchanged."""

_LONG_FIELDS: Mapping[str, Mapping[int, str]] = {
    "model": {of.GRAPH: "graph"},
    "graph": {of.NODE: "node", of.INITIALIZER: "tensor", of.SPARSE_INITIALIZER: "sparse"},
    "node": {of.ATTRIBUTE: "attribute"},
    "attribute": {
        of.TENSOR: "tensor",
        of.TENSORS: "tensor",
        of.SUBGRAPH: "graph",
        of.SUBGRAPHS: "graph",
        of.SPARSE_TENSOR: "sparse",
        of.SPARSE_TENSORS: "sparse",
    },
    "sparse": {of.SPARSE_VALUES: "tensor", of.SPARSE_INDICES: "tensor"},
}


def light_model(content: Content) -> bytes:
    """Return a model's bytes without elements of long tensors, which decide no shapes.

    Raises WireError for damaged data. Complexity: O(bytes kept).
    """
    return _light("model", content, 0, len(content))


def _light(kind: str, content: Content, start: int, stop: int) -> bytes:
    if kind == "tensor":
        return _tensor(content, start, stop)
    long_fields = _LONG_FIELDS[kind]
    pieces: list[bytes] = []
    for number, wire, begin, at, end in fields(content, start, stop):
        inner = long_fields.get(number) if wire == BYTES and end - at > _SURELY_SHORT else None
        if inner is None:
            pieces.append(bytes(content[begin:end]))
        else:
            pieces.append(encode_bytes(number, _light(inner, content, at, end)))
    return b"".join(pieces)


def _tensor(content: Content, start: int, stop: int) -> bytes:
    found = list(fields(content, start, stop))
    dims: list[int] = []
    for number, wire, _, at, end in found:
        if number == of.DIMS:
            while at < end:
                dim, at = read_varint(content, at, end)
                dims.append(dim)
                if wire != BYTES:
                    break
    long = math.prod(dims) > MOST_ELEMENTS
    kept = (field for field in found if not (long and field[0] in of.TENSOR_DATA))
    return b"".join(bytes(content[begin:end]) for _, _, begin, _, end in kept)


_PART_BYTES = 2**22


def drained(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield bytes in bounded parts; release mapped pages once written."""
    for piece in pieces:
        pages = piece.obj if isinstance(piece, memoryview) else None
        for start in range(0, max(len(piece), 1), _PART_BYTES):
            yield piece[start : start + _PART_BYTES]
            if isinstance(pages, mmap.mmap) and len(piece) > _PART_BYTES and hasattr(mmap, "MADV_DONTNEED"):
                pages.madvise(mmap.MADV_DONTNEED)


PLANNED = "lowtide.planned"
"""Key for a planned order: the optimization level, or "file"."""

BY_DEFAULT = ", in the default order"
"""Suffix if this is the runtime's default order."""

MACHINE = "lowtide.machine"
"""Key for a file's machine: channels per block, and the runtime's release."""

SHARING = "lowtide.sharing"
"""Key for files in which several nodes read one DequantizeLinear."""

SMALL = "lowtide.small"
"""Key for files whose runs are too small to be placed."""

ADDRESSES = "lowtide.addresses"
"""Key for the addresses of allocations, at the planned shapes."""


def read_metadata(model: str | bytes | os.PathLike[str]) -> dict[str, str]:
    """Return a model's metadata; empty for an unreadable file."""
    try:
        return _metadata(model if isinstance(model, bytes) else mapped_bytes(Path(model)))
    except LowtideError:
        return {}  # opening the model raises the error


def _metadata(content: Content) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, wire, _, at, end in fields(content, 0, len(content)):
        if number == of.METADATA_PROPS and wire == BYTES:
            entry = {
                field: bytes(content[begin:stop]).decode(errors="replace")
                for field, kind, _, begin, stop in fields(content, at, end)
                if kind == BYTES
            }
            found[entry.get(of.KEY, "")] = entry.get(of.VALUE, "")
    return found
