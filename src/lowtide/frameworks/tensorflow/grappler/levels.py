"""Levels and rounds of Grappler's memory optimizer."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal, get_args

from lowtide.core.errors import UsageError, unknown
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, verify
from lowtide.frameworks.tensorflow.grappler.accumulate import accumulate_sums, sums_near_capacity
from lowtide.frameworks.tensorflow.grappler.nodes import (
    CHEAP_KINDS_TODAY,
    FORWARDING_KINDS_TODAY,
    Hints,
    Nodes,
    nodes_of,
    relaxed_assignments,
)
from lowtide.frameworks.tensorflow.grappler.pressure import pressure_of
from lowtide.frameworks.tensorflow.grappler.recompute import (
    DEFAULT_SCOPE,
    groups_in_scope,
    late_runs,
)
from lowtide.frameworks.tensorflow.grappler.swaps import (
    PCIE_BYTES_PER_SECOND,
    Skipped,
    Swap,
    choose_swaps,
    make_swaps,
    plan_with_swaps,
)

LevelName = Literal["no", "default", "manual", "swapping", "recomputation", "scheduling", "heuristics"]
LEVELS: tuple[LevelName, ...] = get_args(LevelName)
RECOMPUTING = ("manual", "recomputation", "heuristics")
SCHEDULING = ("default", "scheduling", "heuristics")
SWAPPING = ("default", "swapping", "heuristics")
MOST_ROUNDS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPlan:
    """The result of a level; ops by name."""

    graph: Graph
    """With sums rewritten by scheduling."""
    plan: Plan
    """Verified, with its peak."""
    recomputed: tuple[str, ...]
    swapped: tuple[Swap, ...]
    """All, including those too short for the plan."""
    accumulated: tuple[str, ...]
    relaxed: tuple[str, ...]
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
    may_swap: bool = True,
) -> LevelPlan:
    """Run a level of Grappler's memory optimizer on the first memory space; swaps use the second.

    `capacity_bytes` include persistent buffers; without a capacity, only hinted swaps are made, and without `may_swap`
    none. Beyond Grappler, fed values are swapped only if hinted, and variables that were read never. The peak can
    exceed the baseline's. Raises UsageError for an unknown level, hints that match no op, an empty scope, a bandwidth
    that is not positive, and swaps without a second space.
    """
    hints = hints or Hints()
    hints.check(graph)
    if level not in LEVELS:
        raise UsageError(unknown("level", level, LEVELS))
    if not scope:
        raise UsageError("the scope of recomputation targets is empty; give one, such as gradients/")
    if not bytes_per_second > 0:
        raise UsageError(f"the bandwidth to the host is {bytes_per_second}; it must be positive")
    capacity = graph.spaces[0].capacity_bytes if capacity_bytes is None else capacity_bytes
    accumulated: list[str] = []
    swaps: list[Swap] = []
    skipped = Skipped({op for op, name in enumerate(graph.op_names) if name in hints.fed})
    rounds = 0
    while True:
        nodes = nodes_of(graph)
        cheap = () if level == "manual" else cheap_kinds
        groups = groups_in_scope(graph, nodes, scope, cheap, hints) if level in RECOMPUTING else []
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
        new = _new_swaps(graph, nodes, plan, level, capacity, hints, skipped, bytes_per_second) if may_swap else []
        if not new:
            break
        swaps += new
    verify(graph, plan, check_capacity=False)
    return LevelPlan(
        graph=graph,
        plan=replace(plan, peak_bytes=simulate(graph, plan).peak_bytes),
        recomputed=tuple(graph.op_names[op] for group in groups for op in group.ops),
        swapped=tuple(swaps),
        accumulated=tuple(accumulated),
        relaxed=() if level == "no" else tuple(relaxed_assignments(graph, nodes)),
        rounds=rounds,
    )


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
    chosen: dict[int, list[int]] = {}
    if level in SWAPPING and capacity is not None:
        pressure = pressure_of(graph, plan, 0, capacity)
        for op, read in choose_swaps(graph, nodes, pressure, skipped, FORWARDING_KINDS_TODAY):
            chosen.setdefault(op, []).append(read)
    if level in SWAPPING or level == "manual":
        for op, name in enumerate(graph.op_names):
            hinted = [read for read in hints.swap.get(name, ()) if read < len(graph.reads[op])]
            if hinted:  # a rewritten sum has no reads
                chosen.setdefault(op, []).extend(read for read in hinted if read not in chosen.get(op, ()))
    swaps = make_swaps(graph, nodes, chosen, skipped, bytes_per_second)
    if swaps and len(graph.spaces) < 2:
        raise UsageError(f"graph {graph.name!r} has no second memory space to swap to; add one for the host")
    return swaps
