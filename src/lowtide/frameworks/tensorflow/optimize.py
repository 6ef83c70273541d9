"""A graph of TensorFlow within its devices: Grappler's levels, or a plan for a budget."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.effort import EffortName
from lowtide.core.errors import UsageError
from lowtide.core.techniques import Techniques
from lowtide.engine.offload import Host
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.grappler import DEFAULT_SCOPE
from lowtide.frameworks.tensorflow.load import GraphSource
from lowtide.frameworks.tensorflow.model import TensorflowModel
from lowtide.frameworks.tensorflow.operators.kinds import COPY_BACK
from lowtide.frameworks.tensorflow.rewrites.names import RECOMPUTED, node_of

_MEANS: Techniques = frozenset({"reorder", "share", "recompute"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizedGraph:
    """What `optimize` did, by the names of nodes."""

    graph: Any
    """The graph, of the kind that was given."""
    recomputed: tuple[str, ...]
    """Nodes with a copy `Recomputed/NAME`."""
    swapped: tuple[tuple[str, int], ...]
    """Inputs that come back from the host, as (node, which of its inputs)."""
    accumulated: tuple[str, ...]
    """Sums that add one value after the other."""
    relaxed: tuple[str, ...]
    """Assignments that need no pinned memory."""
    before_bytes: Mapping[str, int]
    """The peak by device: Grappler's estimate at a level; within a budget, that of nodes as they are ready."""
    after_bytes: Mapping[str, int]
    """The same afterwards."""
    left_alone: str | None = None
    """Why the graph stays as it is within a budget, in one sentence; None where it does not."""
    result: Result | None
    """The plan within a budget, with its bounds."""


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
) -> OptimizedGraph:
    """Do what TensorFlow's memory optimizer does at a level ("heuristics" by default), or plan within a budget.

    Levels: no; default (scheduling and swapping); manual (what `_recompute_hint` and `_swap_to_host` say); swapping;
    recomputation; scheduling; heuristics (all). `scope` names what may read recomputed values. A copy waits for what
    runs right before its first reader in the simulated schedule. Of nothing, all and the useful groups of nodes, and
    of what Grappler itself would do, that is computed again with which Grappler's estimate is least. "original:LEVEL"
    carries out Grappler's own rules to the letter. `devices` says what devices hold ({"/gpu:0": "4 GiB"}); without it
    nothing is swapped or accumulated but what is hinted. `seconds` says what nodes take, estimated from bytes by
    default.
    With `budget`, in bytes or percent, nodes are ordered and run again as the budgeted planner chooses, and every op
    waits for the one before it; see `lowtide.minimize`. Where TensorFlow keeps the budget in its own order, by a
    simulation of its executor, the graph stays as it is, and `left_alone` says so. With a `host` beside, what is read
    again late may be copied there and back: `swap_out_NAME_OUTPUT`, `swap_in_NAME_OUTPUT`.
    Other arguments and the errors are those of `TensorflowModel`; UsageError for a level and a budget at once, and for
    a host without a budget.
    """
    if level is not None and budget is not None:
        raise UsageError("a level and a budget at once; a budget goes beyond the levels, so name one of both")
    if host is not None and budget is None:
        raise UsageError("a host is for a budget, as levels know a GPU's own; give a budget, or leave the host out")
    model = TensorflowModel(
        graph, dims, shapes=shapes, feeds=feeds, fetches=fetches, devices=devices, signature=signature
    )
    if budget is not None:
        return _within(model, budget, effort, host)
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


def _within(model: TensorflowModel, budget: str | int, effort: EffortName, host: Host | None) -> OptimizedGraph:
    model = model if host is None else model.with_host(host)
    means = _MEANS if host is None else _MEANS | {"offload"}
    result = find_plan(model.graph, PlanSettings(budget=budget, techniques=means, effort=effort))
    allowed = result.budget.allowed[model.graph.spaces[0].name]
    alone = model.reason_to_keep(result.plan, allowed)
    planned = model.planned_graph(result.plan) if alone is None else model.untouched_graph
    names = (node.name for node in planned.nodes if node.name.startswith(RECOMPUTED))
    return OptimizedGraph(
        graph=model.object_of(planned),
        recomputed=tuple(dict.fromkeys(name.removeprefix(RECOMPUTED) for name in names)),
        swapped=tuple(_swapped(planned)),
        accumulated=(),
        relaxed=(),
        before_bytes=result.baseline_peak_bytes,
        after_bytes=result.peak_bytes,
        left_alone=alone,
        result=result,
    )


def _swapped(planned: GraphDef) -> Iterator[tuple[str, int]]:
    """Yield the inputs that read what came back from the host."""
    back = {node.name for node in planned.nodes if node.op == COPY_BACK}
    for node in planned.nodes:
        reads = (text for text in node.inputs if not text.startswith("^"))
        yield from ((node.name, number) for number, text in enumerate(reads) if node_of(text) in back)
