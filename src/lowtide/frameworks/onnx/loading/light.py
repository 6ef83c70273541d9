"""Parse the small part of a model file that planning needs."""

import math
from collections.abc import Mapping

from lowtide.frameworks.onnx.loading import fields as of
from lowtide.frameworks.onnx.shapes.tensors import MOST_ELEMENTS
from lowtide.frameworks.wire import BYTES, Content, encode_bytes, fields, read_varint

_SURELY_SHORT = 1024
"""Bytes below which fields are copied unchanged."""

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
"""By kind of message, the fields that may hold tensors, and their kinds."""


def light_model(content: Content) -> bytes:
    """Return a model's bytes without elements of long tensors, which decide no shapes.

    Weights of a mapped file are not loaded. Raises WireError for damaged data. Complexity: O(bytes kept).
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
