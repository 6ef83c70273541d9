"""Export of a graph to Graphviz."""

from lowtide.core.units import format_bytes
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.reporting.table import printable


def dot(graph: Graph, plan: Plan) -> bytes:
    """Return a digraph with a node per op and an edge per buffer read.

    Inputs and persistent buffers are nodes. Wider edges carry more bytes. Recomputed ops are filled and list all runs.
    """
    places: dict[int, list[int]] = {}
    for place, op in enumerate(plan.order().tolist()):
        places.setdefault(op, []).append(place)
    lines = [f"digraph {_quoted(graph.name)} {{", "  rankdir=TB; node [shape=box, fontsize=10]; edge [fontsize=8];"]
    sizes, producers = graph.sizes.tolist(), graph.structure.producers.tolist()
    most = max(sizes, default=0) or 1
    used = sorted({buffer for buffer in graph.reads.values.tolist() if producers[buffer] < 0})
    for buffer in used:
        shape = "cylinder" if graph.persistent[buffer] else "ellipse"
        label = _quoted(f"{graph.buffer_names[buffer]}\n{format_bytes(sizes[buffer])}")
        lines.append(f"  b{buffer} [label={label}, shape={shape}];")
    for op in places:
        runs = ", ".join(map(str, places[op]))
        filled = ", style=filled, fillcolor=lightyellow" if len(places[op]) > 1 else ""
        lines.append(f"  o{op} [label={_quoted(f'{graph.op_names[op]}' + chr(10) + f'run {runs}')}{filled}];")
    for op, reads in enumerate(graph.reads):
        for buffer in reads:
            source = f"b{buffer}" if producers[buffer] < 0 else f"o{producers[buffer]}"
            width = 0.5 + 4.5 * sizes[buffer] / most
            label = _quoted(format_bytes(sizes[buffer]))
            lines.append(f"  {source} -> o{op} [label={label}, penwidth={width:.2f}];")
    for op, after in enumerate(graph.after):
        lines += [f"  o{earlier} -> o{op} [style=dashed];" for earlier in after]
    return "\n".join([*lines, "}", ""]).encode()


def _quoted(text: str) -> str:
    lines = [printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n")]
    return '"' + "\\n".join(lines) + '"'
