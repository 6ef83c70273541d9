"""A graph as readable text."""

from collections.abc import Iterable

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph.graph import Graph
from lowtide.engine.graph.op import Op


def format_graph(graph: Graph) -> str:
    """Return one line per space, buffer and op, then the subgraphs. Equal graphs give equal text."""
    lines = _format_own(graph)
    for name, inner in graph.subgraphs.items():
        lines.append(f"subgraph {name}:")
        lines.extend(_format_own(inner))
    return "\n".join(lines) + "\n"


def _format_own(graph: Graph) -> list[str]:
    lines = [f"graph {graph.name}"]
    for space in graph.spaces:
        capacity = "unlimited" if space.capacity_bytes is None else f"{space.capacity_bytes} B"
        lines.append(f"  space {space.name} {capacity} align {space.alignment}")
    for number in range(graph.n_buffers):
        buffer = graph.buffer(number)
        home = graph.spaces[buffer.space].name
        lines.append(f"  %{number} {buffer.name}: {buffer.size_bytes} B {buffer.lifetime.name.lower()} in {home}")
    lines.extend(f"  {_format_op(number, op)}" for number, op in enumerate(graph.ops()))
    lines.extend(f"  not modeled: {sentence}" for sentence in graph.unmodeled)
    return lines


def _format_op(number: OpId, op: Op) -> str:
    parts = [f"#{number} {op.name}: {_buffers(op.writes)} = {op.kind}({_buffers(op.reads)})"]
    if op.mutates:
        parts.append(f"mutates {_buffers(op.mutates)}")
    if op.after:
        parts.append("after " + " ".join(f"#{earlier}" for earlier in op.after))
    if op.in_place:
        parts.append("in place " + " ".join(f"%{read}->%{written}" for read, written in op.in_place))
    if op.scratch_bytes:
        parts.append(f"scratch {op.scratch_bytes} B")
    if op.callees:
        parts.append("calls " + " ".join(op.callees))
    if not op.pure:
        parts.append("impure")
    if op.ordered:
        parts.append("ordered")
    if op.repeatable:
        parts.append("repeatable")
    if op.ranks > 1:
        parts.append(f"on {op.ranks} ranks")
    return ", ".join(parts)


def _buffers(ids: Iterable[BufferId]) -> str:
    return " ".join(f"%{buffer}" for buffer in ids) or "-"
