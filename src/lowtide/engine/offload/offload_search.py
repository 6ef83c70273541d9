"""Search for the plan of lowest slow-down with offload in a budget."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import RECOMPUTE_EFFORTS
from lowtide.engine.analysis import simulate
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.offload.copy_placer import CopyPlacer
from lowtide.engine.offload.host_space import Link
from lowtide.engine.offload.offloadable import offloadable_buffers, with_results_of_same_ops
from lowtide.engine.offload.shadow import shadow_of
from lowtide.engine.plan import Plan, Run, Step, StepKind
from lowtide.engine.recompute import BudgetSearch, OrderedProgram
from lowtide.engine.timeline import Timeline, play_timeline

_HEADROOMS = (0.0, 0.03, 0.08)
"""Shares of the budget left free for copies under way."""
_FINE_HEADROOMS = (0.0, 0.01, 0.02, 0.04)
_MAX_TIMINGS = 3


@dataclass(frozen=True, slots=True, eq=False)
class TimedPlan:
    """A plan with its timeline and peaks."""

    plan: Plan
    timeline: Timeline
    peaks: Mapping[str, int]
    over_bytes: int
    fits_elsewhere: bool

    @property
    def rank(self) -> tuple[int, float, int, int]:
        copies = self.plan.kinds == StepKind.COPY_OUT
        return self.over_bytes, self.timeline.extra_seconds, int(copies.sum()), self.plan.n_steps

    def beats(self, other: "TimedPlan") -> bool:
        return self.fits_elsewhere and self.rank < other.rank

    @property
    def run_starts(self) -> list[float]:
        return self.timeline.starts[self.plan.kinds == StepKind.RUN].tolist()


def timed_plan(graph: Graph, plan: Plan, prices: Prices, budget_bytes: int, elsewhere: Mapping[str, int]) -> TimedPlan:
    """Return a plan with its timeline and peaks; `elsewhere` limits spaces but the first by name. O(steps + e)."""
    peaks = simulate(graph, plan).peak_bytes
    over = max(0, peaks[graph.spaces[0].name] - budget_bytes)
    fits_elsewhere = all(peaks[space] <= most for space, most in elsewhere.items())
    return TimedPlan(plan, play_timeline(graph, plan, prices), peaks, over, fits_elsewhere)


def rerun_seconds(prices: Prices, plan: Plan) -> float:
    runs = np.bincount(plan.order(), minlength=len(prices.seconds))
    return math.fsum(((runs - 1) * prices.seconds).tolist())


@dataclass(slots=True, eq=False)
class OffloadSearch:
    """Tries choices of buffers to offload and keeps the best plan."""

    program: OrderedProgram
    budget: int
    prices: Prices
    link: Link
    elsewhere: Mapping[str, int]
    best: TimedPlan
    play_work: int = 0
    tried: set[tuple[bool, bytes]] = field(default_factory=set[tuple[bool, bytes]])

    def is_within(self, bound: float, gap: float) -> bool:
        lost = self.best.timeline.extra_seconds
        return self.best.over_bytes == 0 and lost - bound <= gap * lost

    def costs_at_most(self, seconds: float) -> bool:
        return self.best.over_bytes == 0 and self.best.timeline.extra_seconds <= seconds

    def try_choice(
        self,
        offloaded: NDArray[np.bool_],
        *,
        rerun: bool,
        exact: bool = False,
        play_work: int = RECOMPUTE_EFFORTS["fast"].play_work,
    ) -> bool:
        """Offer plans that offload at most these buffers and other results of their ops; return whether they are new.

        With `rerun`, ops may be recomputed; with `exact`, the solver chooses them.
        """
        graph = self.program.problem.graph
        hidden, offloaded = offloaded, with_results_of_same_ops(graph, offloaded, offloadable_buffers(self.program))
        key = (rerun, np.packbits(hidden).tobytes())
        if key in self.tried or not offloaded.any() or self.costs_at_most(0.0):
            return False
        self.tried.add(key)
        link = self.link
        per_byte = 1 / link.out_bytes_per_s + 1 / link.back_bytes_per_s
        shadow = shadow_of(self.program, offloaded, hidden, link.host, per_byte, rerun=rerun)
        search = BudgetSearch(shadow.program)
        effort = replace(RECOMPUTE_EFFORTS["fast"], play_work=play_work)
        placer = CopyPlacer(graph, self.program.problem.callees, link, self.prices.seconds, self.budget)
        before = shadow.program.native.work
        headrooms = _FINE_HEADROOMS if exact else _HEADROOMS
        for headroom in headrooms:
            budget = self.budget - int(headroom * self.budget)
            found = search.plan(budget, effort, exact=exact)
            self.play_work += shadow.program.native.work - before
            before = shadow.program.native.work
            steps = shadow.steps_with_copies(found.plan, link.host)
            if found.peak_bytes > self.budget:
                self._offer(placer.plan(steps))
                if found.peak_bytes > (1 + headrooms[-1]) * self.budget:
                    break
                continue
            if self.costs_at_most(self._rerun_seconds(steps)) or not self._time(placer, steps):
                break
        return True

    def _time(self, placer: CopyPlacer, steps: Sequence[Step]) -> bool:
        late, starts = placer.free_late(steps)
        for _ in range(_MAX_TIMINGS):
            timed = self._offer(placer.plan(placer.prefetch_early(late, starts)))
            if timed.timeline.stall_seconds == 0:
                return False
            starts = timed.run_starts
        return True

    def _rerun_seconds(self, steps: Sequence[Step]) -> float:
        runs = [step.op for step in steps if isinstance(step, Run)]
        return float(self.prices.seconds[runs].sum() - self.prices.seconds.sum())

    def _offer(self, plan: Plan) -> TimedPlan:
        found = timed_plan(self.program.problem.graph, plan, self.prices, self.budget, self.elsewhere)
        if found.beats(self.best):
            self.best = found
        return found
