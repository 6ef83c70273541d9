"""Parse the small part of a model file that planning needs."""

import math
from collections.abc import Callable, Mapping

from lowtide.frameworks.onnx.loading import fields as of
from lowtide.frameworks.onnx.shapes.tensors import MOST_ELEMENTS
from lowtide.frameworks.wire import BYTES, Content, encode_bytes, fields, read_varint

_SURELY_SHORT = 1024
"""Bytes of nodes and tensors that are copied unchanged."""

Light = Callable[[Content, int, int], bytes]


def light_model(content: Content) -> bytes:
    """Return a model's bytes without the elements of tensors too long to decide a shape.

    Other bytes are not touched, so weights of a mapped file are not loaded. Raises WireError for damaged data.
    Complexity: O(bytes kept).
    """
    return _without(content, 0, len(content), {of.GRAPH: _graph})


def _graph(content: Content, start: int, stop: int) -> bytes:
    return _without(content, start, stop, _IN_GRAPH)


def _node(content: Content, start: int, stop: int) -> bytes:
    return _without(content, start, stop, {of.ATTRIBUTE: _attribute})


def _attribute(content: Content, start: int, stop: int) -> bytes:
    return _without(content, start, stop, _IN_ATTRIBUTE)


def _sparse(content: Content, start: int, stop: int) -> bytes:
    return _without(content, start, stop, {of.SPARSE_VALUES: _tensor, of.SPARSE_INDICES: _tensor})


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


_IN_GRAPH: Mapping[int, Light] = {of.NODE: _node, of.INITIALIZER: _tensor, of.SPARSE_INITIALIZER: _sparse}
_IN_ATTRIBUTE: Mapping[int, Light] = {
    of.TENSOR: _tensor,
    of.TENSORS: _tensor,
    of.SUBGRAPH: _graph,
    of.SUBGRAPHS: _graph,
    of.SPARSE_TENSOR: _sparse,
    of.SPARSE_TENSORS: _sparse,
}


def _without(content: Content, start: int, stop: int, lighter: Mapping[int, Light]) -> bytes:
    """Copy a message; fields in `lighter`, unless surely short, become light themselves."""
    pieces: list[bytes] = []
    for number, wire, begin, at, end in fields(content, start, stop):
        make = lighter.get(number) if wire == BYTES and end - at > _SURELY_SHORT else None
        pieces.append(bytes(content[begin:end]) if make is None else encode_bytes(number, make(content, at, end)))
    return b"".join(pieces)
