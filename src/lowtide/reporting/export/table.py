"""Formats of plan exports."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from lowtide.core.errors import UsageError, unknown
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.graph.file_format import graph_document
from lowtide.engine.plan import Plan

FORMATS: Mapping[str, str] = {
    ".pickle": "lowtide.reporting.export.memory_snapshot:memory_snapshot",
    ".trace.json": "lowtide.reporting.export.chrome_trace:chrome_trace",
    ".csv": "lowtide.reporting.export.buffers_csv:buffers_csv",
    ".graph.json": "lowtide.reporting.export.table:graph_file",
    ".dot": "lowtide.reporting.export.dot:dot",
    ".svg": "lowtide.reporting.export.svg:plan_svg",
}
_OF_ONE_SPACE = (".csv", ".svg")
_PRICED = (".pickle", ".trace.json")


def ending_of(name: str) -> str:
    """Return the ending that selects a format; raises UsageError if unknown."""
    bare = name.lower().removesuffix(".gz")
    found = next((ending for ending in FORMATS if bare.endswith(ending)), None)
    if found is None:
        raise UsageError(
            f"cannot export to {name!r}; give a name that ends in {', '.join(FORMATS)}, with or without .gz"
        )
    return found


def export(graph: Graph, plan: Plan, ending: str, *, space: str | None, prices: Prices) -> bytes:
    """Return a plan in a format. `space` is for single-space formats; default: the first.

    Raises UsageError for an unknown space, and for any space with another format.
    """
    names = [each.name for each in graph.spaces]
    if space is not None and ending not in _OF_ONE_SPACE:
        raise UsageError(f"memory space {space!r} cannot be exported alone, since {ending} holds all; leave it out")
    if space is not None and space not in names:
        raise UsageError(unknown("memory space", space, names))
    module, _, attribute = FORMATS[ending].partition(":")
    write: Callable[..., Any] = getattr(import_module(module), attribute)
    if ending in _OF_ONE_SPACE:
        return write(graph, plan, 0 if space is None else names.index(space))
    return write(graph, plan, prices) if ending in _PRICED else write(graph, plan)


def graph_file(graph: Graph, _plan: Plan) -> bytes:
    return graph_document(graph)
