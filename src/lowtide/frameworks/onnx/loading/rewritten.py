"""The bytes of a model with other nodes: those that stay, and all else, are copied as they stand."""

from collections.abc import Collection, Sequence

from onnx import NodeProto, ValueInfoProto

from lowtide.frameworks.onnx.loading import fields as of
from lowtide.frameworks.wire import BYTES, Content, encode_bytes, encode_size, fields

Pieces = list[bytes | memoryview]


def rewritten_model(
    content: Content,
    nodes: Sequence[int | NodeProto],
    *,
    gone: Collection[str] = (),
    outputs: Sequence[ValueInfoProto] | None = None,
) -> Pieces:
    """Return a model's bytes in pieces, with some nodes: those of the file by their places, and new ones.

    Values that are `gone` lose their descriptions. `outputs`, where given, replace those of the graph. Pieces refer to
    `content`. Raises WireError for what is no message.
    """
    view = memoryview(content)
    pieces: Pieces = []
    for number, wire, begin, at, end in fields(view, 0, len(view)):
        if number == of.GRAPH and wire == BYTES:
            graph = _graph(view, at, end, nodes, frozenset(gone), outputs)
            pieces += [encode_size(number, sum(map(len, graph))), *graph]
        else:
            pieces.append(view[begin:end])
    return pieces


def _graph(
    view: memoryview,
    start: int,
    stop: int,
    nodes: Sequence[int | NodeProto],
    gone: frozenset[str],
    outputs: Sequence[ValueInfoProto] | None,
) -> Pieces:
    given: Pieces = []
    pieces: Pieces = []
    for number, _, begin, at, end in fields(view, start, stop):
        if number == of.NODE:
            given.append(view[begin:end])
        elif number == of.OUTPUT and outputs is not None:
            continue
        elif number != of.VALUE_INFO or ValueInfoProto.FromString(bytes(view[at:end])).name not in gone:
            pieces.append(view[begin:end])
    placed = (
        given[node] if isinstance(node, int) else encode_bytes(of.NODE, node.SerializeToString()) for node in nodes
    )
    described = (encode_bytes(of.OUTPUT, value.SerializeToString()) for value in outputs or ())
    return [*placed, *pieces, *described]
