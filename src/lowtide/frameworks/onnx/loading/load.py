"""ONNX models into memory: from a path or an object, weights left where they are."""

import os
from pathlib import Path
from typing import cast

from google.protobuf.message import DecodeError, EncodeError
from onnx import ModelProto

from lowtide.core.errors import MalformedInputError, UnsupportedError, UsageError
from lowtide.core.files import read_bytes
from lowtide.frameworks.onnx.loading.content import mapped
from lowtide.frameworks.onnx.loading.fields import GRAPH
from lowtide.frameworks.onnx.loading.light import light_model
from lowtide.frameworks.onnx.operators.nodes import plain
from lowtide.frameworks.wire import Content, WireError, fields

_GZIP = b"\x1f\x8b"

ModelSource = str | os.PathLike[str] | ModelProto


def load_model(source: ModelSource) -> ModelProto:
    """Return the model behind a path without the elements of its weights, or the object itself.

    Raises MalformedInputError for a file that is no ONNX model, InputError for one that cannot be read, UsageError for
    an object of another kind.
    """
    if isinstance(source, ModelProto):
        model, where = source, "the model"
    else:
        model, where = _parse(whole_content(source), _path_of(source)), str(source)
    if not model.HasField("graph"):
        raise MalformedInputError(f"{where} holds no graph; it is no ONNX model, or its export was cut short")
    if model.ir_version >= 3 and not model.opset_import:
        raise MalformedInputError(f"{where} names no operator set (opset_import); export it again")
    return model


def whole_content(source: ModelSource) -> Content:
    """Return the bytes of a model, weights included; those of a file are only loaded where somebody looks.

    Raises what `load_model` raises, and UnsupportedError for an object that is too large for a file.
    """
    if isinstance(source, ModelProto):
        return serialize(source, describe_source(source))
    path = _path_of(source)
    content = mapped(path)
    return read_bytes(path) if bytes(content[:2]) == _GZIP else content


def load_whole_model(source: ModelSource) -> ModelProto:
    """Return the model behind a path with all the file holds, or the object itself; raises what `load_model` raises."""
    if isinstance(source, ModelProto):
        return source
    return ModelProto.FromString(cast("bytes", whole_content(source)))


def source_folder(source: ModelSource) -> Path | None:
    """Return the folder that external data is relative to; None for a model without a file."""
    return None if isinstance(source, ModelProto) else Path(source).parent


def describe_source(source: ModelSource) -> str:
    """Name a model in messages: its path, or its graph's name."""
    return f"model {source.graph.name!r}" if isinstance(source, ModelProto) else plain(str(source))


def serialize(model: ModelProto, name: str) -> bytes:
    """Return a model's bytes; raises UnsupportedError for one that is too large for a single file."""
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
        if sum(number == GRAPH for number, *_ in fields(content, 0, len(content))) > 1:
            raise MalformedInputError(f"{path} holds several graphs, which no exporter writes; export it again")
        return ModelProto.FromString(light_model(content))
    except (DecodeError, WireError):
        raise MalformedInputError(
            f"{path} is no ONNX model, or is damaged or cut short: its protobuf data cannot be decoded"
        ) from None
