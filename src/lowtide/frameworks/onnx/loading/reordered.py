"""The bytes of a model with its nodes in another order, some of them twice: all else is copied as it stands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnx import NodeProto

from lowtide.frameworks.onnx.loading import fields as of
from lowtide.frameworks.onnx.loading.renamed import renamed
from lowtide.frameworks.wire import BYTES, Content, encode_bytes, encode_size, fields

Pieces = list[bytes | memoryview]


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """The order of a graph's nodes, by their places in the file, and those of the graphs in their attributes."""

    nodes: Sequence[int]
    """A node that runs several times stands there as often."""
    names: Mapping[int, Mapping[str, str]]
    """New names of what a node reads and writes, by its place in this order."""
    inner: Mapping[tuple[int, str], "NodeOrder"] = field(default_factory=dict[tuple[int, str], "NodeOrder"])
    """By the place of the node and the label of the graph, as `subgraphs_of` gives it."""


def reordered_model(content: Content, order: NodeOrder, metadata: Mapping[str, str]) -> Pieces:
    """Return a model's bytes in pieces, with its nodes in an order and entries in its metadata.

    Pieces refer to `content`, where nothing has a new name. Entries of the metadata that have the same keys are
    replaced. Raises WireError for what is no message.
    """
    view = memoryview(content)
    pieces: Pieces = []
    for number, wire, begin, at, end in fields(view, 0, len(view)):
        if number == of.GRAPH and wire == BYTES:
            pieces += _field(number, _graph(view, at, end, order))
        elif number != of.METADATA_PROPS or _key(view, at, end) not in metadata:
            pieces.append(view[begin:end])
    for key, value in metadata.items():
        entry = encode_bytes(of.KEY, key.encode()) + encode_bytes(of.VALUE, value.encode())
        pieces.append(encode_bytes(of.METADATA_PROPS, entry))
    return pieces


def _key(view: memoryview, start: int, stop: int) -> str:
    entry = fields(view, start, stop)
    return next(
        (bytes(view[at:end]).decode(errors="replace") for number, _, _, at, end in entry if number == of.KEY), ""
    )


def _field(number: int, content: Pieces) -> Pieces:
    return [encode_size(number, sum(map(len, content))), *content]


def _graph(view: memoryview, start: int, stop: int, order: NodeOrder) -> Pieces:
    """Put the nodes in their order where the first node stood."""
    found = list(fields(view, start, stop))
    nodes = [place for place in found if place[0] == of.NODE]
    pieces: Pieces = []
    placed = False
    for number, _, begin, _, end in found:
        if number != of.NODE:
            pieces.append(view[begin:end])
        elif not placed:
            placed = True
            for place, position in enumerate(order.nodes):
                pieces += _placed(view, nodes[position], position, order, order.names.get(place))
    return pieces


def _placed(
    view: memoryview,
    field: tuple[int, int, int, int, int],
    position: int,
    order: NodeOrder,
    names: Mapping[str, str] | None,
) -> Pieces:
    number, _, begin, at, end = field
    inner = {label: changed for (node, label), changed in order.inner.items() if node == position}
    if not inner and names is None:
        return [view[begin:end]]
    content = _node(view, at, end, inner)
    if names is None:
        return _field(number, content)
    return [encode_bytes(number, renamed(NodeProto.FromString(b"".join(content)), names).SerializeToString())]


def _node(view: memoryview, start: int, stop: int, inner: Mapping[str, NodeOrder]) -> Pieces:
    pieces: Pieces = []
    for number, _, begin, at, end in fields(view, start, stop):
        pieces += _field(number, _attribute(view, at, end, inner)) if number == of.ATTRIBUTE else [view[begin:end]]
    return pieces


def _attribute(view: memoryview, start: int, stop: int, inner: Mapping[str, NodeOrder]) -> Pieces:
    found = list(fields(view, start, stop))
    name = "".join(bytes(view[at:end]).decode() for number, _, _, at, end in found if number == of.ATTRIBUTE_NAME)
    pieces: Pieces = []
    listed = 0
    for number, _, begin, at, end in found:
        label = name if number == of.SUBGRAPH else ""
        if number == of.SUBGRAPHS:
            label, listed = f"{name}[{listed}]", listed + 1
        changed = inner.get(label) if label else None
        pieces += [view[begin:end]] if changed is None else _field(number, _graph(view, at, end, changed))
    return pieces
