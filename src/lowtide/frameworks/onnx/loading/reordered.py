"""The bytes of a model with its nodes in another order: everything else is copied as it stands, byte by byte."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lowtide.frameworks.onnx.loading import fields as of
from lowtide.frameworks.wire import BYTES, Content, encode_bytes, fields

Pieces = list[bytes | memoryview]


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """The order of a graph's nodes, by their places in the file, and those of the graphs in their attributes."""

    nodes: Sequence[int]
    inner: Mapping[tuple[int, str], "NodeOrder"] = field(default_factory=dict[tuple[int, str], "NodeOrder"])
    """By the place of the node and the label of the graph, as `subgraphs_of` gives it."""


def reordered_model(content: Content, order: NodeOrder, metadata: Mapping[str, str]) -> Pieces:
    """Return a model's bytes in pieces, with its nodes in an order and entries in its metadata.

    Pieces refer to `content`; together they are as long, metadata apart. Entries that have the same keys are replaced.
    Raises WireError for what is no message.
    """
    view = memoryview(content)
    pieces: Pieces = []
    for number, wire, begin, at, end in fields(view, 0, len(view)):
        if number == of.GRAPH and wire == BYTES:
            pieces += [view[begin:at], *_graph(view, at, end, order)]
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


def _graph(view: memoryview, start: int, stop: int, order: NodeOrder) -> Pieces:
    """Put the nodes in their order where nodes stood; no length changes, so that the graph's stays what it was."""
    found = list(fields(view, start, stop))
    nodes = [place for place in found if place[0] == of.NODE]
    coming = iter(order.nodes)
    pieces: Pieces = []
    for number, _, begin, _, end in found:
        if number != of.NODE:
            pieces.append(view[begin:end])
            continue
        position = next(coming)
        _, _, begin, at, end = nodes[position]
        inner = {label: changed for (node, label), changed in order.inner.items() if node == position}
        pieces += [view[begin:at], *_node(view, at, end, inner)] if inner else [view[begin:end]]
    return pieces


def _node(view: memoryview, start: int, stop: int, inner: Mapping[str, NodeOrder]) -> Pieces:
    pieces: Pieces = []
    for number, _, begin, at, end in fields(view, start, stop):
        pieces += [view[begin:at], *_attribute(view, at, end, inner)] if number == of.ATTRIBUTE else [view[begin:end]]
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
        pieces += [view[begin:end]] if changed is None else [view[begin:at], *_graph(view, at, end, changed)]
    return pieces
