"""Edit models as bytes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import GraphProto, NodeProto, ValueInfoProto

from lowtide.frameworks.onnx.loading import fields as of
from lowtide.frameworks.onnx.operators.nodes import outer_names, subgraphs_of
from lowtide.frameworks.wire import BYTES, Content, encode_bytes, encode_size, fields

Pieces = list[bytes | memoryview]


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """A graph's nodes in order, inner graphs included."""

    nodes: Sequence[int]
    """Positions; a recomputed node appears once per run."""
    names: Mapping[int, Mapping[str, str]]
    """New names of values, by place."""
    inner: Mapping[tuple[int, str], "NodeOrder"] = field(default_factory=dict[tuple[int, str], "NodeOrder"])
    """By node position and label as in `subgraphs_of`."""


def reordered_model(content: Content, order: NodeOrder, metadata: Mapping[str, str]) -> Pieces:
    """Return a model's bytes in pieces, with reordered nodes and new metadata.

    Entries replace those with the same key. Raises WireError for damaged data.
    """

    def edit(view: memoryview, start: int, stop: int) -> Pieces:
        found = list(fields(view, start, stop))
        nodes = [(begin, at, end) for number, _, begin, at, end in found if number == of.NODE]
        holders = {node for node, _ in order.inner}
        pieces: Pieces = []
        for place, position in enumerate(order.nodes):
            begin, at, end = nodes[position]
            if position in holders or place in order.names:
                node = _edited(NodeProto.FromString(bytes(view[at:end])), place, position, order)
                pieces.append(encode_bytes(of.NODE, node.SerializeToString()))
            else:
                pieces.append(view[begin:end])
        return [*pieces, *(view[begin:end] for number, _, begin, _, end in found if number != of.NODE)]

    return edited_model(content, edit, metadata)


def edited_model(
    content: Content, edit: Callable[[memoryview, int, int], Pieces], metadata: Mapping[str, str] | None = None
) -> Pieces:
    """Return a model's bytes with new metadata and the graph made by `edit`."""
    view = memoryview(content)
    metadata = metadata or {}
    pieces: Pieces = []
    for number, wire, begin, at, end in fields(view, 0, len(view)):
        if number == of.GRAPH and wire == BYTES:
            graph = edit(view, at, end)
            pieces += [encode_size(number, sum(map(len, graph))), *graph]
        elif number != of.METADATA_PROPS or _key(view, at, end) not in metadata:
            pieces.append(view[begin:end])
    return [*pieces, encoded_metadata(of.METADATA_PROPS, metadata)]


def encoded_metadata(number: int, entries: Mapping[str, str]) -> bytes:
    encoded = (
        encode_bytes(of.KEY, key.encode()) + encode_bytes(of.VALUE, value.encode()) for key, value in entries.items()
    )
    return b"".join(encode_bytes(number, entry) for entry in encoded)


def _key(view: memoryview, start: int, stop: int) -> str:
    keys = (view[at:end] for number, _, _, at, end in fields(view, start, stop) if number == of.KEY)
    return bytes(next(keys, b"")).decode(errors="replace")


def _edited(node: NodeProto, place: int, position: int, order: NodeOrder) -> NodeProto:
    for label, graph in subgraphs_of(node):
        inner = order.inner.get((position, label))
        if inner is not None:
            given = [each.SerializeToString() for each in graph.node]
            del graph.node[:]
            for number, each in enumerate(inner.nodes):
                graph.node.append(_edited(NodeProto.FromString(given[each]), number, each, inner))
    return renamed(node, order.names[place]) if place in order.names else node


def rewritten_model(
    content: Content,
    nodes: Sequence[int | NodeProto],
    *,
    gone: Collection[str] = (),
    outputs: Sequence[ValueInfoProto] | None = None,
) -> Pieces:
    """Return a model's bytes with `nodes`, each new or the position of an existing one.

    Values in `gone` lose their descriptions; `outputs` replace the graph's. Raises WireError for damaged data.
    """

    def edit(view: memoryview, start: int, stop: int) -> Pieces:
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

    return edited_model(content, edit)


def renamed(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    """Rename a node's values in place, captured names included.

    Its own name gets a suffix, so that profiles distinguish runs.
    """
    written = [names[name] for name in node.output if name in names]
    if node.name and written:
        node.name = f"{node.name}:{written[0]}"
    node.output[:] = [names.get(name, name) for name in node.output]
    _rename_reads(node, names)
    return node


def _rename_reads(node: NodeProto, names: Mapping[str, str]) -> None:
    node.input[:] = [names.get(name, name) for name in node.input]
    for _, graph in subgraphs_of(node):
        _rename_captured(graph, names)


def _rename_captured(graph: GraphProto, names: Mapping[str, str]) -> None:
    captured = {name: names[name] for name in outer_names(graph) if name in names}
    if not captured:
        return
    for node in graph.node:
        _rename_reads(node, captured)
    for output in graph.output:
        output.name = captured.get(output.name, output.name)
