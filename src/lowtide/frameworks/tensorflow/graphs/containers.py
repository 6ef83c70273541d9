"""MetaGraphDefs and SavedModels."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.graphs.messages import field_head, map_entry, named_fields, values
from lowtide.frameworks.wire import Content

DEFAULT_SIGNATURE = "serving_default"
_TRAIN_OP = "train_op"


@dataclass(frozen=True, slots=True)
class Signature:
    """Tensors by the names of inputs and outputs."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MetaGraph:
    """A MetaGraphDef; `piece` is its message."""

    piece: Content
    graph: GraphDef
    signatures: Mapping[str, Signature] = field(default_factory=dict[str, Signature])
    train_ops: tuple[str, ...] = ()

    def pieces_with(self, graph: GraphDef) -> list[Content]:
        if graph is self.graph:
            return [self.piece]
        return _replaced("MetaGraphDef", self.piece, "graph_def", graph.pieces())


def read_meta_graph(piece: Content) -> MetaGraph:
    """Read a MetaGraphDef; raises WireError for broken content."""
    graphs = [GraphDef.parse(graph) for graph in values("MetaGraphDef", piece, "graph_def")]
    signatures: dict[str, Signature] = {}
    for entry in values("MetaGraphDef", piece, "signature_def"):
        name, value = map_entry("SignatureEntry", entry)
        signatures[name] = Signature(_tensors(value, "inputs"), _tensors(value, "outputs"))
    collections = dict(map_entry("CollectionEntry", entry) for entry in values("MetaGraphDef", piece, "collection_def"))
    node_lists = values("CollectionDef", collections.get(_TRAIN_OP), "node_list")
    return MetaGraph(
        piece=piece,
        graph=graphs[-1] if graphs else GraphDef(),
        signatures=signatures,
        train_ops=tuple(node for nodes in node_lists for node in values("NodeList", nodes, "value")),
    )


def meta_graphs_of(saved_model: Content) -> list[MetaGraph]:
    return [read_meta_graph(piece) for piece in values("SavedModel", saved_model, "meta_graphs")]


def saved_model_with(saved_model: Content, meta_graph: list[Content]) -> list[Content]:
    return _replaced("SavedModel", saved_model, "meta_graphs", meta_graph)


def _replaced(kind: str, piece: Content, replaced: str, pieces: list[Content]) -> list[Content]:
    written: list[Content] = []
    is_done = False
    for name, start, _, end in named_fields(kind, piece):
        if name == replaced and not is_done:
            is_done = True
            written += (field_head(kind, name, sum(map(len, pieces))), *pieces)
        else:
            written.append(piece[start:end])
    return written


def _tensors(signature: Content, name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in values("SignatureDef", signature, name):
        key, value = map_entry("TensorInfoEntry", entry)
        found.update((key, tensor) for tensor in values("TensorInfo", value, "name"))
    return found
