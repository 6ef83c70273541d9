"""What holds graphs: MetaGraphDefs and SavedModels, with what they say is fed and wanted."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.wire import BYTES, Content, encode_varint, fields

DEFAULT_SIGNATURE = "serving_default"
TRAIN_OP = "train_op"
_GRAPH_DEF, _COLLECTION, _SIGNATURE = 2, 4, 5
_META_GRAPH = 2


@dataclass(frozen=True, slots=True)
class Signature:
    """Outputs by the names that callers use."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MetaGraph:
    """A MetaGraphDef as it was read."""

    piece: Content
    graph: GraphDef
    signatures: Mapping[str, Signature] = field(default_factory=dict[str, Signature])
    train_ops: tuple[str, ...] = ()
    """The collection "train_op": what Grappler takes as wanted."""

    def pieces_with(self, graph: GraphDef) -> list[Content]:
        """Return what is written with another graph and all else as it is."""
        if graph is self.graph:
            return [self.piece]
        return _replaced(self.piece, _GRAPH_DEF, graph.pieces())


def read_meta_graph(piece: Content) -> MetaGraph:
    """Read a MetaGraphDef; raises WireError for what is none."""
    graph = GraphDef()
    signatures: dict[str, Signature] = {}
    train_ops: tuple[str, ...] = ()
    for number, wire, _, begin, end in fields(piece, 0, len(piece)):
        if wire != BYTES:
            continue
        if number == _GRAPH_DEF:
            graph = GraphDef.parse(piece[begin:end])
        elif number == _SIGNATURE:
            name, value = _entry(piece[begin:end])
            signatures[name] = _signature(value)
        elif number == _COLLECTION:
            name, value = _entry(piece[begin:end])
            if name == TRAIN_OP:
                train_ops = tuple(_collected(value))
    return MetaGraph(piece, graph, signatures, train_ops)


def meta_graphs_of(saved_model: Content) -> list[MetaGraph]:
    """Return the meta graphs of a SavedModel; raises WireError for what is none."""
    return [
        read_meta_graph(saved_model[begin:end])
        for number, wire, _, begin, end in fields(saved_model, 0, len(saved_model))
        if (number, wire) == (_META_GRAPH, BYTES)
    ]


def saved_model_with(saved_model: Content, meta_graph: list[Content]) -> list[Content]:
    """Return what is written of a SavedModel whose first meta graph is another one."""
    return _replaced(saved_model, _META_GRAPH, meta_graph)


def _replaced(piece: Content, replaced: int, pieces: list[Content]) -> list[Content]:
    """Return a message with other content in the first field of a number; later ones of that number stay."""
    written: list[Content] = []
    is_done = False
    for number, wire, start, _, end in fields(piece, 0, len(piece)):
        if (number, wire) == (replaced, BYTES) and not is_done:
            is_done = True
            written += (encode_varint(number << 3 | BYTES), encode_varint(sum(map(len, pieces))), *pieces)
        else:
            written.append(piece[start:end])
    return written


def _signature(piece: Content) -> Signature:
    maps: dict[int, dict[str, str]] = {1: {}, 2: {}}
    for number, wire, _, begin, end in fields(piece, 0, len(piece)):
        if number in maps and wire == BYTES:
            key, value = _entry(piece[begin:end])
            for inner, inner_wire, _, at, stop in fields(value, 0, len(value)):
                if (inner, inner_wire) == (1, BYTES):
                    maps[number][key] = str(value[at:stop], "utf-8", "replace")
    return Signature(maps[1], maps[2])


def _collected(piece: Content) -> list[str]:
    """Return the node names of a collection."""
    return [
        str(piece[at:stop], "utf-8", "replace")
        for number, wire, _, begin, end in fields(piece, 0, len(piece))
        if (number, wire) == (1, BYTES)
        for inner, inner_wire, _, at, stop in fields(piece, begin, end)
        if (inner, inner_wire) == (1, BYTES)
    ]


def _entry(piece: Content) -> tuple[str, Content]:
    name, value = "", piece[:0]
    for number, wire, _, begin, end in fields(piece, 0, len(piece)):
        if (number, wire) == (1, BYTES):
            name = str(piece[begin:end], "utf-8", "replace")
        elif (number, wire) == (2, BYTES):
            value = piece[begin:end]
    return name, value
