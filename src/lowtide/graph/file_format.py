"""The graph file: JSON, optionally gzipped, with a published schema."""

from pathlib import Path
from typing import Any, Literal

import msgspec

from lowtide.collection import without_collection
from lowtide.documents import read_document
from lowtide.errors import GraphError
from lowtide.files import write_bytes
from lowtide.graph.builder import GraphBuilder
from lowtide.graph.check import callee_order
from lowtide.graph.graph import Graph
from lowtide.graph.lifetime import Lifetime
from lowtide.graph.op import Op

LifetimeName = Literal["persistent", "input", "donated", "intermediate", "output"]
_LIFETIMES: dict[str, Lifetime] = {lifetime.name.lower(): lifetime for lifetime in Lifetime}


class _GraphFileRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Base of all records: an unknown key is an error, a default is not written."""


class SpaceRecord(_GraphFileRecord):
    """A memory space."""

    name: str
    capacity_bytes: int | None = None
    alignment: int = 1
    bandwidth_bytes_per_s: dict[str, float] = {}


class BufferRecord(_GraphFileRecord, rename={"lifetime": "class"}):
    """A buffer."""

    name: str
    size_bytes: int
    lifetime: LifetimeName
    space: str | None = None

    def __post_init__(self) -> None:
        """Do nothing. Python looks at signals in its own calls, so Ctrl-C works while millions are decoded."""


class GraphRecord(_GraphFileRecord):
    """A whole graph file."""

    lowtide_graph: Literal[1]
    name: str
    buffers: list[BufferRecord]
    ops: list[Op]
    spaces: list[SpaceRecord] = []
    graphs: dict[str, "GraphRecord"] = {}
    unmodeled: list[str] = []


@without_collection()
def read_graph_file(path: str | Path) -> Graph:
    """Read a graph file (`*.graph.json`, `*.graph.json.gz`).

    Raises MalformedInputError when the file is no graph file, GraphError when it holds no valid program, InputError
    when it cannot be read.
    """
    path = Path(path)
    record = read_document(path, GraphRecord, "no valid graph file")
    try:
        return graph_from_record(record)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None


@without_collection()
def write_graph_file(graph: Graph, path: str | Path) -> None:
    """Write a graph file, gzipped when the name ends in .gz; atomic, and equal graphs give equal files.

    >>> import lowtide
    >>> builder = lowtide.GraphBuilder("a buffer")
    >>> x = builder.add_buffer("x", 1024, lowtide.Lifetime.INPUT)
    >>> lowtide.write_graph_file(builder.build(), "a_buffer.graph.json.gz")
    >>> lowtide.read_graph_file("a_buffer.graph.json.gz")
    Graph('a buffer', 0 ops, 1 buffers)
    """
    write_bytes(Path(path), graph_document(graph))


def graph_document(graph: Graph) -> bytes:
    """Return what a graph file holds."""
    return msgspec.json.encode(_to_record(graph))


def graph_schema() -> dict[str, Any]:
    """Return the JSON Schema of the graph file."""
    return msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(GraphRecord)))  # no tuples, as read from a file


def graph_from_record(record: GraphRecord) -> Graph:
    """Turn a decoded graph file into a graph, callees first; raises GraphError."""
    if any(inner.graphs for inner in record.graphs.values()):
        raise GraphError("a graph under 'graphs' has 'graphs' of its own; list all of them at the top")
    calls = {
        name: dict.fromkeys(callee for op in inner.ops for callee in op.callees)
        for name, inner in record.graphs.items()
    }
    subgraphs: dict[str, Graph] = {}
    for name in callee_order({name: [c for c in callees if c in calls] for name, callees in calls.items()}):
        called = {callee: subgraphs[callee] for callee in calls[name] if callee in subgraphs}
        subgraphs[name] = _build(record.graphs[name], called)
    return _build(record, subgraphs)


def _build(record: GraphRecord, subgraphs: dict[str, Graph]) -> Graph:
    builder = GraphBuilder(record.name)
    for name, subgraph in subgraphs.items():
        builder.add_subgraph(name, subgraph)
    for space in record.spaces:
        builder.add_space(
            space.name,
            capacity_bytes=space.capacity_bytes,
            alignment=space.alignment,
            bandwidth_bytes_per_s=space.bandwidth_bytes_per_s,
        )
    space_ids = {space.name: position for position, space in enumerate(record.spaces)} or {"device": 0}
    for buffer in record.buffers:
        space = 0 if buffer.space is None else space_ids.get(buffer.space)
        if space is None:
            raise GraphError(
                f"buffer {buffer.name!r} is in memory space {buffer.space!r}, which 'spaces' does not list"
            )
        builder.add_buffer(buffer.name, buffer.size_bytes, _LIFETIMES[buffer.lifetime], space=space)
    for op in record.ops:
        builder.add(op)
    for sentence in record.unmodeled:
        builder.note(sentence)
    return builder.build()


def _to_record(graph: Graph, *, top: bool = True) -> GraphRecord:
    spaces = [
        SpaceRecord(
            name=space.name,
            capacity_bytes=space.capacity_bytes,
            alignment=space.alignment,
            bandwidth_bytes_per_s=dict(space.bandwidth_bytes_per_s),
        )
        for space in graph.spaces
    ]
    homes: list[int] = graph.buffer_spaces.tolist()
    elsewhere: list[str | None] = [None, *(space.name for space in graph.spaces[1:])]
    buffers = [
        BufferRecord(
            name=name,
            size_bytes=size,
            lifetime=Lifetime(lifetime).name.lower(),  # pyright: ignore[reportArgumentType]
            space=elsewhere[space],
        )
        for name, size, lifetime, space in zip(
            graph.buffer_names,
            graph.sizes.tolist(),
            graph.lifetimes.tolist(),
            homes,
            strict=True,
        )
    ]
    return GraphRecord(
        lowtide_graph=1,
        name=graph.name,
        spaces=spaces,
        buffers=buffers,
        ops=list(graph.ops()),
        graphs={name: _to_record(inner, top=False) for name, inner in graph.subgraphs.items()} if top else {},
        unmodeled=list(graph.unmodeled),
    )
