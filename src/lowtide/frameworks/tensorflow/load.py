"""Load graphs from files and objects."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from lowtide.core.errors import InputError, MalformedInputError, UsageError
from lowtide.core.files import mapped_bytes
from lowtide.frameworks.content import SAVED_MODEL, is_text_graph, kind_of_graph
from lowtide.frameworks.tensorflow.graphs.attributes import Shape
from lowtide.frameworks.tensorflow.graphs.containers import (
    DEFAULT_SIGNATURE,
    MetaGraph,
    meta_graphs_of,
    read_meta_graph,
    saved_model_with,
)
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.graphs.messages import from_text, to_text
from lowtide.frameworks.wire import Content, WireError

GraphSource = str | Path | GraphDef | Any
"""A path, or a GraphDef, MetaGraphDef, SavedModel, tf.Graph or ConcreteFunction."""


BINARY, TEXT = (".pb",), (".pbtxt", ".prototxt")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedGraph:
    """A graph, its source's feeds and fetches, and conversions."""

    graph: GraphDef
    where: str
    feeds: Sequence[str] = ()
    fetches: Sequence[str] = ()
    file_endings: tuple[str, ...] = BINARY
    pieces_of: Callable[[GraphDef], list[Content]]
    """Encodes a binary file with another graph."""
    text: Content | None = None
    object_of: Callable[[GraphDef], Any]
    """Makes an object of the source's kind."""
    captured: Mapping[str, tuple[int, Shape]] = field(default_factory=dict[str, tuple[int, Shape]])
    """Placeholders for captured variables, with types and shapes."""

    def content_of(self, graph: GraphDef, name: str) -> list[Content]:
        """Return file content, as text if the name asks for it."""
        if not name.lower().endswith(TEXT) or self.file_endings == BINARY:
            return self.pieces_of(graph)
        if graph is self.graph and self.text is not None:
            return [self.text]
        return [to_text(graph.SerializeToString(), self.where)]


def load_graph(source: GraphSource, signature: str | None = None) -> LoadedGraph:
    """Return a source's graph, memory-mapped.

    Raises MalformedInputError for a broken file, UsageError for another kind of object or an unknown signature.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        return _of_content(mapped_bytes(path / SAVED_MODEL if path.is_dir() else path), str(source), signature)
    if isinstance(source, GraphDef):
        return _plain(source, "the graph", lambda graph: graph)
    return _of_object(source, signature)


def _of_object(source: Any, signature: str | None) -> LoadedGraph:
    kind = cast("type[Any]", type(source))
    if hasattr(source, "structured_outputs") and hasattr(source, "graph"):  # a ConcreteFunction
        graph = source.graph
        return LoadedGraph(
            graph=_parse(graph.as_graph_def(add_shapes=True).SerializeToString(), f"function {source.name!r}"),
            where="the function",
            feeds=[tensor.name for tensor in graph.inputs],
            fetches=[*(tensor.name for tensor in graph.outputs), *(each.name for each in graph.control_outputs)],
            file_endings=(*BINARY, *TEXT),
            pieces_of=GraphDef.pieces,
            object_of=_message,
            captured=_captured(graph),
        )
    if hasattr(source, "as_graph_def"):
        content = source.as_graph_def(add_shapes=True).SerializeToString()
        return _plain(_parse(content, "the graph"), "the graph", _message)
    if not hasattr(source, "SerializeToString") or kind.__name__ not in _READ_AS:
        raise UsageError(
            f"cannot read a {kind.__name__} as a graph of TensorFlow; give a GraphDef, MetaGraphDef, SavedModel, "
            "tf.Graph or ConcreteFunction"
        )

    loaded = _READ_AS[kind.__name__](source.SerializeToString(), "the graph", signature)

    def remade(graph: GraphDef) -> Any:
        made = kind()
        made.ParseFromString(b"".join(loaded.pieces_of(graph)))
        return made

    return replace(loaded, object_of=remade)


def _captured(graph: Any) -> dict[str, tuple[int, Shape]]:
    try:
        variables = {id(variable.handle): variable for variable in graph.variables}
    except AssertionError:
        raise UsageError(
            f"function {graph.name!r} reads variables that were deleted; keep the model that they belong to"
        ) from None
    found: dict[str, tuple[int, Shape]] = {}
    for outer, inner in graph.captures:
        variable = variables.get(id(outer))
        if variable is not None and variable.shape.is_fully_defined():
            found[inner.op.name] = int(variable.dtype.as_datatype_enum), tuple(variable.shape.as_list())
    return found


def _message(graph: GraphDef) -> Any:
    from lowtide.frameworks.tensorflow.session import graph_message

    return graph_message(graph)


def _of_content(content: Content, where: str, signature: str | None) -> LoadedGraph:
    if is_text_graph(bytes(content[:_HEAD])):
        return replace(_graph_def(from_text(content, where), where, signature), text=content)
    return _READ_AS[kind_of_graph(bytes(content[:_HEAD])) or "GraphDef"](content, where, signature)


def _graph_def(content: Content, where: str, signature: str | None) -> LoadedGraph:
    if signature is not None:
        raise UsageError(f"{where} is a GraphDef and has no signatures; leave out {signature!r}")
    return _plain(_parse(content, where), where, lambda graph: graph)


def _meta_graph(content: Content, where: str, signature: str | None) -> LoadedGraph:
    meta = _checked(lambda: read_meta_graph(content), where)
    return _of_meta_graph(meta, where, signature, meta.pieces_with)


def _saved_model(content: Content, where: str, signature: str | None) -> LoadedGraph:
    metas = _checked(lambda: meta_graphs_of(content), where)
    if not metas:
        raise InputError(f"{where}: the SavedModel has no graph")
    meta = metas[0]

    def pieces(graph: GraphDef) -> list[Content]:
        return [content] if graph is meta.graph else saved_model_with(content, meta.pieces_with(graph))

    return _of_meta_graph(meta, where, signature, pieces)


def _of_meta_graph(
    meta: MetaGraph, where: str, signature: str | None, pieces: Callable[[GraphDef], list[Content]]
) -> LoadedGraph:
    name = signature
    if name is None and DEFAULT_SIGNATURE in meta.signatures:
        name = DEFAULT_SIGNATURE
    if name is not None and name not in meta.signatures:
        raise UsageError(f"{where} has no signature {name!r}; it has {', '.join(sorted(meta.signatures)) or 'none'}")
    chosen = None if name is None else meta.signatures[name]
    return LoadedGraph(
        graph=meta.graph,
        where=where,
        feeds=() if chosen is None else sorted(chosen.inputs.values()),
        fetches=meta.train_ops if chosen is None else sorted(chosen.outputs.values()),
        pieces_of=pieces,
        object_of=lambda graph: graph,
    )


def _plain(graph: GraphDef, where: str, object_of: Callable[[GraphDef], Any]) -> LoadedGraph:
    endings = (*BINARY, *TEXT)
    return LoadedGraph(graph=graph, where=where, file_endings=endings, pieces_of=GraphDef.pieces, object_of=object_of)


def _parse(content: Content, where: str) -> GraphDef:
    return _checked(lambda: GraphDef.parse(content), where)


def _checked(read: Callable[[], Any], where: str) -> Any:
    try:
        return read()
    except WireError as error:
        raise MalformedInputError(
            f"{where}: no valid GraphDef at byte {error.at}: {error.what}; the file is damaged or something else"
        ) from None


_HEAD = 2**16
_READ_AS: dict[str, Callable[[Content, str, str | None], LoadedGraph]] = {
    "GraphDef": _graph_def,
    "MetaGraphDef": _meta_graph,
    "SavedModel": _saved_model,
}
