"""A base order with ops that may be recomputed."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import Moment, Place, SpaceId
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph import Graph, Lifetime, Rows
from lowtide.engine.graph.execution import counted_sizes, may_run_twice
from lowtide.engine.plan import HOME, Plan, StepKind

Ints = NDArray[np.int32]
_UNIT_SHARE = 1e-6


def rerun_until(graph: Graph, order: Order) -> NDArray[np.int32]:
    """Return, per op, the last moment for recomputing it, 0 if it may not run twice. O(n + e).

    Moment 2i + 1 is the first run at place i. An op runs twice only before its operands change, and only if no other op
    overwrites its result.
    """
    return _until(graph, order, np.ones(graph.n_buffers, np.bool_))


def rerun_until_at_most(graph: Graph, order: Order) -> NDArray[np.int32]:
    """Return the same for bounds: only overwriting a buffer that cannot be recomputed sets a limit."""
    producers = graph.structure.producers
    return _until(graph, order, (producers < 0) | ~may_run_twice(graph)[producers])


def _until(graph: Graph, order: Order, lost: NDArray[np.bool_]) -> NDArray[np.int32]:
    n = graph.n_ops
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    writes = np.concatenate(
        [np.stack([rows.values, place[rows.owners()]], axis=1) for rows in (graph.writes, graph.mutates)]
    )
    writes = np.unique(writes, axis=0)
    keys = writes[:, 0].astype(np.int64) * (n + 1) + writes[:, 1]
    until = np.full(n, 2 * n + 2, np.int64)
    for rows in (graph.reads, graph.writes):
        owners, buffers = rows.owners(), rows.values.astype(np.int64)
        after = np.searchsorted(keys, buffers * (n + 1) + place[owners], side="right")
        found = after < len(keys)
        found[found] = writes[after[found], 0] == buffers[found]
        found &= lost[buffers]
        moments = 2 * writes[after[found], 1] + 1
        np.minimum.at(until, owners[found], moments if rows is graph.reads else 0)
    makes_something = np.diff(graph.structure.allocates.offsets) > 0
    return np.where(may_run_twice(graph) & makes_something, until, 0).astype(np.int32)


def first_run_at(place: Place) -> Moment:
    return 2 * place + 1


@dataclass(frozen=True, slots=True, eq=False)
class Drops:
    """Buffers to drop, by moment of the base order.

    At each moment, buffers used later are kept and others dropped; for listed buffers, the reverse.
    """

    moments: Ints = field(default_factory=lambda: np.zeros(0, np.int32))
    """Ascending, see `index_spaces.Moment`."""
    listed: Ints = field(default_factory=lambda: np.zeros((0, 2), np.int32))
    """Rows of (moment, buffer)."""


@dataclass(frozen=True, slots=True, eq=False)
class Execution:
    """The runs of a program, with their memory and cost."""

    runs: Ints
    stages: Ints
    """Per run, the place of the base op it serves (n: the end)."""
    live: NDArray[np.int64]
    dies: NDArray[np.uint8]
    """Per run, for each buffer touched, then allocated: whether this is the copy's last use."""
    pairs: Ints
    """Rows of in-place pairs: (position of the run, buffer read, buffer written)."""
    extra_cost: float
    peak_bytes: int


@dataclass(frozen=True, eq=False)
class OrderedProgram:
    """A problem's base order, with recompute costs and a memory space."""

    problem: Problem
    order: Order
    cost: NDArray[np.float64]
    space: SpaceId = 0

    @cached_property
    def native(self) -> _native.RecomputeProgram:
        allowed = rerun_until(self.problem.graph, self.order)
        return _native.RecomputeProgram(
            self.problem.native, self.order, self.cost, allowed, self.space, self.problem.in_place
        )

    @cached_property
    def counted_sizes(self) -> NDArray[np.int64]:
        """Per buffer, the bytes it adds to the peak."""
        return counted_sizes(self.problem.graph, self.space)

    @cached_property
    def places(self) -> Ints:
        places = np.empty(self.problem.graph.n_ops, np.int32)
        places[self.order] = np.arange(len(places), dtype=np.int32)
        return places

    def execute(self, drops: Drops) -> Execution:
        """Run the program, recomputing missing operands right before each op; any drops work. O(accesses), native."""
        runs, stages, live, dies, pairs, extra_cost, peak = self.native.execute(drops.moments, drops.listed.ravel())
        return Execution(runs, stages, live, dies, pairs.reshape(-1, 3), extra_cost, peak)

    def replay(self, runs: Ints) -> Execution:
        """Run ops in sequence: first runs in base order, recomputed ones anywhere. O(accesses), native."""
        runs, stages, live, dies, pairs, extra_cost, peak = self.native.replay(runs)
        return Execution(runs, stages, live, dies, pairs.reshape(-1, 3), extra_cost, peak)

    def plan(self, execution: Execution) -> Plan:
        """Return an execution as a plan that frees after last use. O(accesses)."""
        graph = self.problem.graph
        touches: list[list[int]] = list(graph.structure.touches)
        allocates: list[list[int]] = list(graph.structure.allocates)
        runs: list[int] = execution.runs.tolist()
        dies: list[int] = execution.dies.tolist()
        taken: dict[int, list[int]] = {}
        for run, read, written in execution.pairs.tolist():
            taken.setdefault(run, []).extend((read, written))
        kinds: list[int] = []
        targets: list[int] = []
        lengths: list[int] = []

        def step(kind: StepKind, target: int, n_paired: int = 0) -> None:
            kinds.append(kind)
            targets.append(target)
            lengths.append(n_paired)

        for buffer in np.flatnonzero(graph.lifetimes == Lifetime.DONATED).tolist():
            if not len(graph.structure.users[buffer]):
                step(StepKind.FREE, buffer)
        access = 0
        for run, op in enumerate(runs):
            paired = taken.get(run, [])
            step(StepKind.RUN, op, len(paired))
            for buffer in touches[op] + allocates[op]:
                if dies[access] and buffer not in paired[::2]:
                    step(StepKind.FREE, buffer)
                access += 1
        return Plan(
            graph_fingerprint=graph.fingerprint,
            kinds=np.asarray(kinds, np.uint8),
            targets=np.asarray(targets, np.int32),
            spaces=np.full(len(kinds), HOME, np.int16),
            pairs=Rows.from_flat(lengths, (buffer for paired in taken.values() for buffer in paired)),
            callees=dict(self.problem.callees),
        )


def cost_unit(cost: NDArray[np.float64]) -> float:
    """Return the smallest positive cost if all are multiples of it, else 0."""
    positive = cost[cost > 0]
    unit = float(positive.min(initial=np.inf))
    return unit if np.isfinite(unit) and not (positive % unit).any() else 0.0


def before_rounding(bound: float, cost: NDArray[np.float64]) -> float:
    """Return the least bound that rounds up to `bound`, a multiple of the unit."""
    return bound - (1 - _UNIT_SHARE) * cost_unit(cost)


def checked_cost(problem: Problem, cost: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the costs or the graph's; raises UsageError unless each op has a finite cost of at least 0."""
    costs = np.ascontiguousarray(problem.graph.cost if cost is None else cost, np.float64)
    if costs.shape != (problem.graph.n_ops,):
        raise UsageError(f"costs have shape {costs.shape}; give one cost for each of the {problem.graph.n_ops} ops")
    if not (np.isfinite(costs) & (costs >= 0)).all():
        op = int(np.argmin(np.isfinite(costs) & (costs >= 0)))
        raise UsageError(f"op {problem.graph.op_names[op]!r} has cost {costs[op]}; give a finite cost of at least 0")
    return costs
