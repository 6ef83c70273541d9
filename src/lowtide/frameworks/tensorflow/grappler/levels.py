"""Grappler's memory optimizer: its levels, and the rounds in which its passes follow one another."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal, get_args

from lowtide.core.errors import UsageError, unknown
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, verify
from lowtide.frameworks.tensorflow.grappler.accumulate import accumulate_sums
from lowtide.frameworks.tensorflow.grappler.allocator_constraints import relaxed_assignments
from lowtide.frameworks.tensorflow.grappler.groups import (
    DEFAULT_SCOPE,
    Group,
    candidate_ops,
    recompute_groups,
    target_ops,
)
from lowtide.frameworks.tensorflow.grappler.hints import Hints
from lowtide.frameworks.tensorflow.grappler.host_stays import plan_with_swaps
from lowtide.frameworks.tensorflow.grappler.kinds import CHEAP_KINDS_TODAY, FORWARDING_KINDS_TODAY
from lowtide.frameworks.tensorflow.grappler.late_runs import late_runs
from lowtide.frameworks.tensorflow.grappler.nodes import Nodes, nodes_of
from lowtide.frameworks.tensorflow.grappler.pressure import pressure_of
from lowtide.frameworks.tensorflow.grappler.sums import sums_near_capacity
from lowtide.frameworks.tensorflow.grappler.swap_choice import Skipped, choose_swaps
from lowtide.frameworks.tensorflow.grappler.swaps import PCIE_BYTES_PER_SECOND, Swap, make_swaps

LevelName = Literal["no", "default", "manual", "swapping", "recomputation", "scheduling", "heuristics"]
LEVELS: tuple[LevelName, ...] = get_args(LevelName)
RECOMPUTING = ("manual", "recomputation", "heuristics")
SCHEDULING = ("default", "scheduling", "heuristics")
SWAPPING = ("default", "swapping", "heuristics")
MOST_ROUNDS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimized:
    """What a level did; ops by name."""

    graph: Graph
    """The graph, with sums rewritten to accumulations where scheduling did that."""
    plan: Plan
    """A verified plan for this graph, with its simulated peak."""
    recomputed: tuple[str, ...]
    swapped: tuple[Swap, ...]
    """Every swap that Grappler makes; a stay that would last no time is not in the plan."""
    accumulated: tuple[str, ...]
    relaxed: tuple[str, ...]
    """Assignments that need no pinned memory."""
    rounds: int


def optimize_memory(
    graph: Graph,
    level: LevelName = "default",
    *,
    capacity_bytes: int | None = None,
    hints: Hints | None = None,
    scope: str = DEFAULT_SCOPE,
    cheap_kinds: Collection[str] = CHEAP_KINDS_TODAY,
    bytes_per_second: float = PCIE_BYTES_PER_SECOND,
) -> Optimized:
    """Do what TensorFlow Grappler's memory optimizer does at a level, in the first memory space; swap to the second.

    Levels: no; default (scheduling and swapping); manual (what hints say); swapping; recomputation; scheduling;
    heuristics (all). Recomputation comes first, then at most 25 rounds of scheduling and swapping while something
    changes, sums before swaps. `capacity_bytes` is what the first space holds, persistent buffers included, by default
    what the graph says. Without a capacity, scheduling and swapping do nothing but what is hinted: every level that
    swaps makes the hinted swaps.

    Beyond Grappler, what the caller feeds is swapped only where that is hinted, and a variable that was read never:
    neither would free anything. The plan follows the program order. Nothing guarantees that its peak is lower, as in
    Grappler. Raises UsageError for an unknown level, hints that fit no op, a scope or bandwidth that is none, and swaps
    without a second space.
    """
    hints = hints or Hints()
    hints.check(graph)
    if level not in LEVELS:
        raise UsageError(unknown("level", level, LEVELS))
    if not scope:
        raise UsageError("the scope of recomputation targets is empty, which every name starts with; name one")
    if not bytes_per_second > 0:
        raise UsageError(f"the bandwidth to the host is {bytes_per_second}; it must be positive")
    capacity = graph.spaces[0].capacity_bytes if capacity_bytes is None else capacity_bytes
    accumulated: list[str] = []
    swaps: list[Swap] = []
    skipped = Skipped({op for op, name in enumerate(graph.op_names) if name in hints.fed})
    rounds = 0
    while True:
        nodes = nodes_of(graph)
        groups = _groups(graph, nodes, level, scope, cheap_kinds, hints)
        runs = late_runs(graph, nodes, groups)
        plan = plan_with_swaps(graph, runs, swaps, 1, bytes_per_second)
        if rounds == MOST_ROUNDS:
            break
        rounds += 1
        if level in SCHEDULING and capacity is not None and not swaps:
            sums = sums_near_capacity(graph, pressure_of(graph, plan, 0, capacity), capacity)
            if sums:
                accumulated += [graph.op_names[op] for op in sums]
                graph = accumulate_sums(graph, sums)
                continue
        new = _new_swaps(graph, nodes, plan, level, capacity, hints, skipped, bytes_per_second)
        if not new:
            break
        swaps += new
    verify(graph, plan, check_capacity=False)
    return Optimized(
        graph=graph,
        plan=replace(plan, peak_bytes=simulate(graph, plan).peak_bytes),
        recomputed=tuple(graph.op_names[op] for group in groups for op in group.ops),
        swapped=tuple(swaps),
        accumulated=tuple(accumulated),
        relaxed=() if level == "no" else tuple(relaxed_assignments(graph, nodes)),
        rounds=rounds,
    )


def _groups(
    graph: Graph, nodes: Nodes, level: LevelName, scope: str, cheap_kinds: Collection[str], hints: Hints
) -> list[Group]:
    if level not in RECOMPUTING:
        return []
    targets = target_ops(graph, scope)
    candidates = candidate_ops(graph, targets, () if level == "manual" else cheap_kinds, hints)
    return recompute_groups(nodes, candidates, targets)


def _new_swaps(
    graph: Graph,
    nodes: Nodes,
    plan: Plan,
    level: LevelName,
    capacity: int | None,
    hints: Hints,
    skipped: Skipped,
    bytes_per_second: float,
) -> list[Swap]:
    """Return what one round swaps: what the heuristic chooses at its levels, and what is hinted."""
    chosen: dict[int, list[int]] = {}
    if level in SWAPPING and capacity is not None:
        pressure = pressure_of(graph, plan, 0, capacity)
        for op, read in choose_swaps(graph, nodes, pressure, skipped, FORWARDING_KINDS_TODAY):
            chosen.setdefault(op, []).append(read)
    if level in SWAPPING or level == "manual":
        for op, name in enumerate(graph.op_names):
            hinted = [read for read in hints.swap.get(name, ()) if read < len(graph.reads[op])]
            if hinted:  # a sum that was rewritten has no reads any more
                chosen.setdefault(op, []).extend(read for read in hinted if read not in chosen.get(op, ()))
    swaps = make_swaps(graph, nodes, chosen, skipped, bytes_per_second)
    if swaps and len(graph.spaces) < 2:
        raise UsageError(f"graph {graph.name!r} has no second memory space to swap to; add one for the host")
    return swaps
