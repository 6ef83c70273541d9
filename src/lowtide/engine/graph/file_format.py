"""The graph file: JSON with a published schema, optionally gzipped."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import msgspec

from lowtide.core.collection import without_collection
from lowtide.core.documents import in_pieces, read_document
from lowtide.core.errors import GraphError
from lowtide.core.files import write_bytes
from lowtide.engine.graph.builder import GraphBuilder
from lowtide.engine.graph.check import callee_order
from lowtide.engine.graph.graph import Graph, Lifetime
from lowtide.engine.graph.op import Op

LifetimeName = Literal["persistent", "input", "donated", "intermediate", "output"]
_LIFETIMES: dict[str, Lifetime] = {lifetime.name.lower(): lifetime for lifetime in Lifetime}


class _GraphFileRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Base of all records. Unknown keys are errors."""


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
        """Let Python handle Ctrl-C while millions of records are decoded."""


class GraphRecord(_GraphFileRecord):
    """A graph file."""

    lowtide_graph: Literal[1]
    name: str
    buffers: list[BufferRecord]
    ops: list[Op]
    spaces: list[SpaceRecord] = []
    graphs: dict[str, "GraphRecord"] = {}
    unmodeled: list[str] = []


class _GraphInPieces(GraphRecord):
    """A graph file with undecoded long lists."""

    buffers: msgspec.Raw  # pyright: ignore[reportIncompatibleVariableOverride]
    ops: msgspec.Raw  # pyright: ignore[reportIncompatibleVariableOverride]


@without_collection()
def read_graph_file(path: str | Path) -> Graph:
    """Read a graph file (`*.graph.json`, `*.graph.json.gz`).

    Raises MalformedInputError, GraphError for an invalid program, InputError for an unreadable file.
    """
    path, refusal = Path(path), "not a valid graph file"
    record = read_document(path, _GraphInPieces, refusal)
    buffers = in_pieces(record.buffers, list[BufferRecord], path, refusal, "buffers")
    ops = in_pieces(record.ops, list[Op], path, refusal, "ops")
    try:
        return _graph_from_record(record, buffers, ops)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None


@without_collection()
def write_graph_file(graph: Graph, path: str | Path) -> None:
    """Write a graph file atomically, gzipped if the name ends in .gz. Equal graphs give equal files.

    >>> import lowtide
    >>> builder = lowtide.GraphBuilder("a buffer")
    >>> x = builder.add_buffer("x", 1024, lowtide.Lifetime.INPUT)
    >>> lowtide.write_graph_file(builder.build(), "a_buffer.graph.json.gz")
    >>> lowtide.read_graph_file("a_buffer.graph.json.gz")
    Graph('a buffer', 0 ops, 1 buffers)
    """
    write_bytes(Path(path), graph_document(graph))


def graph_document(graph: Graph) -> bytes:
    return msgspec.json.encode(_to_record(graph))


def graph_schema() -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(GraphRecord)))  # lists, not tuples


def _graph_from_record(record: GraphRecord, buffers: Iterable[list[BufferRecord]], ops: Iterable[list[Op]]) -> Graph:
    if any(inner.graphs for inner in record.graphs.values()):
        raise GraphError("a graph under 'graphs' has its own 'graphs'; list all graphs at the top level")
    calls = {
        name: dict.fromkeys(callee for op in inner.ops for callee in op.callees)
        for name, inner in record.graphs.items()
    }
    subgraphs: dict[str, Graph] = {}
    for name in callee_order({name: [c for c in callees if c in calls] for name, callees in calls.items()}):
        called = {callee: subgraphs[callee] for callee in calls[name] if callee in subgraphs}
        inner = record.graphs[name]
        subgraphs[name] = _builder(inner, called, [inner.buffers], [inner.ops]).build()
    return _builder(record, subgraphs, buffers, ops).build()


def _builder(
    record: GraphRecord,
    subgraphs: dict[str, Graph],
    buffers: Iterable[list[BufferRecord]],
    ops: Iterable[list[Op]],
) -> GraphBuilder:
    builder = GraphBuilder(record.name)
    for name, subgraph in subgraphs.items():
        builder.add_subgraph(name, subgraph)
    for space in record.spaces:
        builder.add_space(**msgspec.structs.asdict(space))
    spaces = [space.name for space in record.spaces] or ["device"]
    homes: dict[str | None, int] = {None: 0, **{name: position for position, name in enumerate(spaces)}}
    for piece in buffers:
        unknown = next((buffer for buffer in piece if buffer.space not in homes), None)
        if unknown is not None:
            raise GraphError(
                f"buffer {unknown.name!r} is in memory space {unknown.space!r}, which 'spaces' does not list"
            )
        builder.add_buffers(
            (buffer.name for buffer in piece),
            (buffer.size_bytes for buffer in piece),
            (_LIFETIMES[buffer.lifetime] for buffer in piece),
            (homes[buffer.space] for buffer in piece),
        )
    for piece in ops:
        builder.add_ops(piece)
    for sentence in record.unmodeled:
        builder.note(sentence)
    return builder


def _to_record(graph: Graph, *, top: bool = True) -> GraphRecord:
    sizes, lifetimes = graph.sizes.tolist(), graph.lifetimes.tolist()
    homes: list[int] = graph.buffer_spaces.tolist()
    elsewhere: list[str | None] = [None, *(space.name for space in graph.spaces[1:])]
    buffers = [
        BufferRecord(
            name=name,
            size_bytes=size,
            lifetime=Lifetime(lifetime).name.lower(),  # pyright: ignore[reportArgumentType]
            space=elsewhere[space],
        )
        for name, size, lifetime, space in zip(graph.buffer_names, sizes, lifetimes, homes, strict=True)
    ]
    return GraphRecord(
        lowtide_graph=1,
        name=graph.name,
        spaces=[SpaceRecord(**asdict(space)) for space in graph.spaces],
        buffers=buffers,
        ops=list(graph.ops()),
        graphs={name: _to_record(inner, top=False) for name, inner in graph.subgraphs.items()} if top else {},
        unmodeled=list(graph.unmodeled),
    )
