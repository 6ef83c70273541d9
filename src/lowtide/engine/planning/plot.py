"""Memory over a plan's runs, drawn by matplotlib."""

from importlib import import_module
from typing import Any

from lowtide.core.errors import MissingExtraError, UsageError, one_line, unknown
from lowtide.engine.analysis.memory_over_time import PARTS, MemoryOverTime, memory_over_time, runs_per_column
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan

_MOST_COLUMNS = 4096
_MIB = 2**20


def plot_memory(graph: Graph, plan: Plan, space: str | None, levels: dict[str, int], axes: Any = None) -> Any:
    """Draw a plan's memory in a space, stacked by what it is for, with the untouched program and levels as lines.

    `space` is the first one by default; `axes` are matplotlib's, new ones by default. Returns them.
    Raises MissingExtraError without matplotlib, UsageError for an unknown space.
    """
    names = [each.name for each in graph.spaces]
    if space is not None and space not in names:
        raise UsageError(unknown("memory space", space, names))
    position = 0 if space is None else names.index(space)
    if axes is None:
        axes = _pyplot().subplots(figsize=(10, 4), layout="constrained")[1]
    grain = runs_per_column(max(graph.n_ops, len(plan.order())), _MOST_COLUMNS)
    before = memory_over_time(graph, Plan.baseline(graph), position, grain)
    after = memory_over_time(graph, plan, position, grain)
    shown = [part for part in range(len(PARTS)) if after.parts[part].any()]
    hatches = ["", "..", "//", "\\\\", "xx", "--", "||"]
    axes.stackplot(
        _runs(after),
        [after.parts[part] / _MIB for part in shown],
        labels=[PARTS[part] for part in shown],
        hatch=[hatches[part] for part in shown],
        step="post",
        alpha=0.8,
    )
    axes.step(_runs(before), before.live / _MIB, where="post", color="black", linestyle="--", label="before")
    for number, (name, level) in enumerate(levels.items()):
        axes.axhline(level / _MIB, color=("tab:green", "tab:red")[number % 2], linestyle=":", label=name)
    axes.set_xlabel("run number")
    axes.set_ylabel("MiB")
    axes.set_title(f"{graph.name}: memory of {after.space}")
    axes.legend(loc="upper left", fontsize="small")
    return axes


def _runs(memory: MemoryOverTime) -> list[int]:
    return [column * memory.runs_per_column for column in range(len(memory.steps))]


def _pyplot() -> Any:
    try:
        return import_module("matplotlib.pyplot")
    except ImportError as error:
        raise MissingExtraError("plot", one_line(error)) from error
