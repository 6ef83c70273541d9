"""Optimize a graph by a level of Grappler, or for a budget."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.effort import EffortName
from lowtide.core.errors import UsageError
from lowtide.core.progress import Report, showing
from lowtide.engine.offload import Host
from lowtide.engine.planning.budget import given_budget
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings, default_techniques
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.grappler.recompute import DEFAULT_SCOPE
from lowtide.frameworks.tensorflow.load import GraphSource
from lowtide.frameworks.tensorflow.model import TensorflowModel
from lowtide.frameworks.tensorflow.operators import COPY_BACK
from lowtide.frameworks.tensorflow.rewrites.edited_nodes import RECOMPUTED, node_of


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizedGraph:
    """An optimized graph, and its changes by name."""

    graph: Any
    """As the kind of object given."""
    recomputed: tuple[str, ...]
    """Nodes with a copy `Recomputed/NAME`."""
    swapped: tuple[tuple[str, int], ...]
    """Swapped inputs, as (node, input index)."""
    accumulated: tuple[str, ...]
    """Sums rewritten to accumulations."""
    relaxed: tuple[str, ...]
    """Assignments that need no pinned memory."""
    before_bytes: Mapping[str, int]
    """Peaks by device: Grappler's estimate, or the baseline's with a budget."""
    after_bytes: Mapping[str, int]
    """Peaks by device, after the changes."""
    left_alone: str | None = None
    """Why a budget needs no plan; None if the plan was applied."""
    result: Result | None


def optimize(
    graph: GraphSource,
    level: str | None = None,
    *,
    budget: str | int | None = None,
    devices: Mapping[str, str | int] | None = None,
    feeds: Sequence[str] | None = None,
    fetches: Sequence[str] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    signature: str | None = None,
    scope: str = DEFAULT_SCOPE,
    seconds: Mapping[str, float] | None = None,
    host: Host | None = None,
    effort: EffortName = "fast",
    progress: bool | Report = True,
) -> OptimizedGraph:
    """Run a level of Grappler's memory optimizer ("heuristics" by default), or plan for a budget.

    Levels: no; default (scheduling and swapping); manual (`_recompute_hint` and `_swap_to_host`); swapping;
    recomputation; scheduling; heuristics (all). Nodes in `scope` may read recomputed values. "original:LEVEL" follows
    Grappler exactly. `devices` are capacities ({"/gpu:0": "4 GiB"}); without them, only hinted values are swapped.
    `seconds` are costs by node.

    With `budget`, in bytes or percent, `lowtide.minimize` chooses order and recomputation, and with a `host` offloads.
    If TensorFlow meets the budget on its own in a simulation, the graph stays unchanged. In a terminal or notebook,
    searches over two seconds show progress; `progress` turns that off, or receives its lines. Other arguments and
    errors are those of `TensorflowModel`.

    Raises UsageError for a level together with a budget, and for a host without a budget.
    """
    if level is not None and budget is not None:
        raise UsageError("both a level and a budget are given; give only one")
    if host is not None and budget is None:
        raise UsageError("a host needs a budget; give a budget, or leave out the host")
    model = TensorflowModel(
        graph, dims, shapes=shapes, feeds=feeds, fetches=fetches, devices=devices, signature=signature
    )
    if budget is not None:
        techniques = default_techniques(given_budget(budget))
        if host is not None:
            model, techniques = model.with_host(host), techniques | {"offload"}
        with showing(progress) as report:
            result = plan_best_form(model, PlanSettings(budget=budget, techniques=techniques, effort=effort), report)
        return _planned(model, result)
    changes = model.at_level(level or "heuristics", scope, seconds)
    return OptimizedGraph(
        graph=model.with_nodes(changes.nodes),
        recomputed=tuple(changes.recomputed),
        swapped=tuple((swap.node, swap.number) for swap in changes.swapped),
        accumulated=tuple(changes.accumulated),
        relaxed=tuple(changes.relaxed),
        before_bytes=changes.before_bytes,
        after_bytes=changes.after_bytes,
        result=None,
    )


def _planned(model: TensorflowModel, result: Result) -> OptimizedGraph:
    allowed = result.budget.allowed[model.graph.spaces[0].name]
    reason = model.reason_to_keep(result.plan, allowed)
    applied = model.planned_graph(result.plan) if reason is None else model.unmodified_graph
    names = (node.name for node in applied.nodes if node.name.startswith(RECOMPUTED))
    return OptimizedGraph(
        graph=model.object_of(applied),
        recomputed=tuple(dict.fromkeys(name.removeprefix(RECOMPUTED) for name in names)),
        swapped=tuple(_swapped(applied)),
        accumulated=(),
        relaxed=(),
        before_bytes=result.baseline_peak_bytes,
        after_bytes=result.peak_bytes,
        left_alone=reason,
        result=result,
    )


def _swapped(applied: GraphDef) -> Iterator[tuple[str, int]]:
    back = {node.name for node in applied.nodes if node.op == COPY_BACK}
    for node in applied.nodes:
        reads = (text for text in node.inputs if not text.startswith("^"))
        yield from ((node.name, number) for number, text in enumerate(reads) if node_of(text) in back)
