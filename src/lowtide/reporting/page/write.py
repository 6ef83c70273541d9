"""A report as one HTML file that loads nothing from the network."""

import re
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from lowtide.core.errors import UsageError
from lowtide.core.files import check_writable
from lowtide.core.index_spaces import OpId, SpaceId, StepIndex
from lowtide.engine.analysis.memory_over_time import PARTS, MemoryOverTime
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, StepKind
from lowtide.reporting.fields import to_object
from lowtide.reporting.page.facts import Facts
from lowtide.reporting.page.figures import figures
from lowtide.reporting.page.rectangles import Rectangles
from lowtide.reporting.table import printable

_PLACE = re.compile(r"/\*\{\{([\w./]+)\}\}\*/")


def check_page(path: Path) -> None:
    """Raise UsageError unless a report can be written to this path."""
    if path.suffix not in (".html", ".htm"):
        raise UsageError(f"cannot write a report to {path.name!r}; give a name that ends in .html")
    check_writable(path)


def page(facts: Facts) -> bytes:
    """Return a report's HTML file. Equal facts give equal files."""
    data = {"figures": to_object("report", figures(facts)), "pictures": pictures(facts)}
    # names in the data must not open a tag
    written = msgspec.json.encode(_printable(data)).decode().replace("<", "\\u003c")

    picture = facts.picture()
    made = {"report": written, "sentence": escape(printable(picture.sentence)), "picture": picture.svg()}

    def filled(place: re.Match[str]) -> str:
        return made[place[1]] if place[1] in made else _asset(place[1])

    return _PLACE.sub(filled, _asset("page.html")).encode()


def _asset(name: str) -> str:
    return (files("lowtide.reporting.page") / name).read_text(encoding="utf-8")


def _printable(value: Any) -> Any:
    """Escape control characters and lone surrogates; names come from files."""
    if isinstance(value, str):
        return value if value.isprintable() else printable(value)
    if isinstance(value, dict):
        return {key: _printable(each) for key, each in value.items()}  # pyright: ignore
    if isinstance(value, list) and value and not isinstance(value[0], int | float):
        return [_printable(each) for each in value]  # pyright: ignore
    return value  # pyright: ignore


def pictures(facts: Facts) -> dict[str, Any]:
    """Return the charts per memory space, and the source lines of their ops."""
    spaces = [_space_to_json(facts, space) for space in range(len(facts.graph.spaces))]
    bars, left_out = facts.streams
    named = {bar.what for bar in bars}
    for space in spaces:
        named.update(space["before"]["ops"], space["after"]["ops"], (space["rectangles"] or {"op": ()})["op"])
    graphs = (facts.graph, facts.unmodified)
    sources = (place for graph in graphs for place in zip(graph.op_names, graph.sources, strict=True))
    return {
        "parts": list(PARTS),
        "spaces": spaces,
        "streams": {"bars": [[bar.stream, bar.start, bar.seconds, bar.what] for bar in bars], "left_out": left_out},
        "sources": {op: source for op, source in sources if source is not None and op in named},
    }


def _space_to_json(facts: Facts, space: SpaceId) -> dict[str, Any]:
    before, after = facts.over_time[space]
    rectangles = None
    if len(facts.plan.addresses):
        arena = facts.plan.arena_bytes.get(after.space, 0)
        found = Rectangles.of(facts.graph, facts.plan, space)
        rectangles = found.to_json(facts.graph, after.n_runs, arena)
    return {
        "name": after.space,
        "runs_per_column": after.runs_per_column,
        "before": _series(facts.unmodified, before, facts.baseline),
        "after": _series(facts.graph, after, facts.plan),
        "rectangles": rectangles,
    }


def _series(graph: Graph, memory: MemoryOverTime, plan: Plan) -> dict[str, Any]:
    names = graph.op_names
    at = [_op_at(plan, step) for step in memory.steps.tolist()]
    return {
        "n_runs": memory.n_runs,
        "parts": memory.parts.tolist(),
        "ops": ["" if op is None else names[op] for op in at],
    }


def _op_at(plan: Plan, step: StepIndex) -> OpId | None:
    return int(plan.targets[step]) if step >= 0 and plan.kinds[step] == StepKind.RUN else None
