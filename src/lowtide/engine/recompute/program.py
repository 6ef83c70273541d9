"""A base order whose ops may run again: what every planner of this room works on."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.index_spaces import Moment, Place, SpaceId
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph import Lifetime, Rows
from lowtide.engine.plan import HOME, Plan, StepKind
from lowtide.engine.recompute.rules import rerun_until

Ints = NDArray[np.int32]


def first_run_at(place: Place) -> Moment:
    """Return the moment of the first run of the op at a place."""
    return 2 * place + 1


@dataclass(frozen=True, slots=True, eq=False)
class Drops:
    """What is dropped when.

    At every moment named, buffers that the base order uses later are kept and all others are dropped. Exceptions are
    listed: of those that are used later, a listed one is dropped; of the others, a listed one is kept.
    """

    moments: Ints = field(default_factory=lambda: np.zeros(0, np.int32))
    """Numbered as `index_spaces.Moment` says, ascending."""
    listed: Ints = field(default_factory=lambda: np.zeros((0, 2), np.int32))
    """Rows of (moment, buffer)."""


@dataclass(frozen=True, slots=True, eq=False)
class Execution:
    """What a program does where drops, or given runs, say so."""

    runs: Ints
    """Ops in the order they run."""
    stages: Ints
    """Per run, the place in the base order of the op that it runs for; the number of ops at the end."""
    live: NDArray[np.int64]
    """Per run, live bytes of the space while it runs."""
    dies: NDArray[np.uint8]
    """Per run, for what it touches and then what it allocates: whether the copy is used for the last time."""
    pairs: Ints
    """In-place pairs taken, rows of (position of the run, read, written)."""
    extra_cost: float
    peak_bytes: int


@dataclass(frozen=True, eq=False)
class Program:
    """A base order of a problem, the cost of every op, and the memory space whose peak counts."""

    problem: Problem
    order: Order
    cost: NDArray[np.float64]
    """Per op, what running it again costs."""
    space: SpaceId = 0

    @cached_property
    def native(self) -> _native.RecomputeProgram:
        """The program as the kernels take it."""
        allowed = rerun_until(self.problem.graph, self.order)
        return _native.RecomputeProgram(
            self.problem.native, self.order, self.cost, allowed, self.space, self.problem.in_place
        )

    @cached_property
    def counted_sizes(self) -> NDArray[np.int64]:
        """Per buffer, the bytes it adds to the peak while it is resident."""
        graph = self.problem.graph
        counts = (graph.buffer_spaces == self.space) & ~graph.persistent
        return np.where(counts, graph.sizes, 0)

    @cached_property
    def places(self) -> Ints:
        """Per op, its place in the base order."""
        places = np.empty(self.problem.graph.n_ops, np.int32)
        places[self.order] = np.arange(len(places), dtype=np.int32)
        return places

    def execute(self, drops: Drops) -> Execution:
        """Play the program with drops: what is missing when an op needs it runs again right before.

        Any drops at all give a correct plan. O(accesses of the plan), native.
        """
        runs, stages, live, dies, pairs, extra_cost, peak = self.native.execute(drops.moments, drops.listed.ravel())
        return Execution(runs, stages, live, dies, pairs.reshape(-1, 3), extra_cost, peak)

    def replay(self, runs: Ints) -> Execution:
        """Play runs as they are: first runs in base order, reruns wherever they stand. O(accesses), native."""
        runs, stages, live, dies, pairs, extra_cost, peak = self.native.replay(runs)
        return Execution(runs, stages, live, dies, pairs.reshape(-1, 3), extra_cost, peak)

    def plan(self, execution: Execution) -> Plan:
        """Write an execution down as a plan with frees at every last use. O(accesses of the plan)."""
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
