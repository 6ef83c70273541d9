"""The search for the plan of least slow-down in a budget: what is offloaded, what runs again, when copies happen."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import RECOMPUTE_EFFORTS
from lowtide.engine.costs import Prices
from lowtide.engine.offload.hide_transfers import CopyPlacer
from lowtide.engine.offload.host_space import Link
from lowtide.engine.offload.offloadable import offloadable_buffers, with_results_of_same_ops
from lowtide.engine.offload.shadow import shadow_of
from lowtide.engine.offload.timed_plan import TimedPlan, play
from lowtide.engine.plan import Plan, Run, Step
from lowtide.engine.recompute import BudgetSearch, Program

_HEADROOMS = (0.0, 0.03, 0.08)
"""Parts of the budget left free while choosing, for copies under way."""
_FINE_HEADROOMS = (0.0, 0.01, 0.02, 0.04)
"""The same for choices that are worth more work."""
_MOST_TIMINGS = 3


@dataclass(slots=True, eq=False)
class OffloadSearch:
    """Tries choices of what to offload and keeps the best plan."""

    program: Program
    budget: int
    prices: Prices
    link: Link
    best: TimedPlan
    played: int = 0
    """Accesses played so far."""
    tried: set[tuple[bool, bytes]] = field(default_factory=set[tuple[bool, bytes]])

    def is_perfect(self) -> bool:
        """Whether nothing can be better: the budget is met and no time is lost."""
        return self.best.over_bytes == 0 and self.best.timeline.extra_seconds <= 0

    def is_within(self, bound: float, gap: float) -> bool:
        """Whether the best plan is that close to a bound, relative to what it loses."""
        lost = self.best.timeline.extra_seconds
        return self.best.over_bytes == 0 and lost - bound <= gap * lost

    def loses_no_more_than(self, seconds: float) -> bool:
        """Whether the best plan loses no more than some seconds."""
        return self.best.over_bytes == 0 and self.best.timeline.extra_seconds <= seconds

    def try_choice(
        self,
        offloaded: NDArray[np.bool_],
        *,
        rerun: bool,
        exact: bool = False,
        play_work: int = RECOMPUTE_EFFORTS["fast"].play_work,
    ) -> bool:
        """Offer plans that offload no more than the given buffers and other results of the same ops.

        Without `rerun`, nothing runs again; with `exact`, the solver chooses what does. If a plan waits for copies,
        others that leave some of the budget free for them are tried too. `play_work` limits the accesses played for
        each. Returns whether there was anything new to try.
        """
        graph = self.program.problem.graph
        hidden, offloaded = offloaded, with_results_of_same_ops(graph, offloaded, offloadable_buffers(self.program))
        key = (rerun, np.packbits(hidden).tobytes())
        if key in self.tried or not offloaded.any() or self.is_perfect():
            return False
        self.tried.add(key)
        link = self.link
        per_byte = 1 / link.out_bytes_per_s + 1 / link.back_bytes_per_s
        shadow = shadow_of(self.program, offloaded, hidden, link.host, per_byte, rerun=rerun)
        search = BudgetSearch(shadow.program)
        effort = replace(RECOMPUTE_EFFORTS["fast"], play_work=play_work)
        placer = CopyPlacer(graph, self.program.problem.callees, link, self.prices.seconds, self.budget)
        before = shadow.program.native.work
        for headroom in _FINE_HEADROOMS if exact else _HEADROOMS:
            budget = self.budget - int(headroom * self.budget)
            found = search.plan(budget, effort, exact=exact)
            self.played += shadow.program.native.work - before
            before = shadow.program.native.work
            steps = shadow.steps_with_copies(found.plan, link.host)
            if found.peak_bytes > self.budget:
                self._offer(placer.plan(steps), fits=False)
                continue
            if self.loses_no_more_than(self._rerun_seconds(steps)) or not self._time(placer, steps):
                break
        return True

    def _time(self, placer: CopyPlacer, steps: Sequence[Step]) -> bool:
        """Offer a plan whose copies hide as far as memory allows; returns whether it waits for copies.

        Copies are placed first by the clock of the runs, then by that of the plan so far.
        """
        late, starts = placer.free_late(steps)
        for _ in range(_MOST_TIMINGS):
            timed = self._offer(placer.plan(placer.prefetch_early(late, starts)))
            if timed.timeline.stall_seconds == 0:
                return False
            starts = timed.run_starts
        return True

    def _rerun_seconds(self, steps: Sequence[Step]) -> float:
        """Return the seconds of what runs again."""
        runs = [step.op for step in steps if isinstance(step, Run)]
        return float(self.prices.seconds[runs].sum() - self.prices.seconds.sum())

    def _offer(self, plan: Plan, *, fits: bool = True) -> TimedPlan:
        """Return a plan with its timeline; it is the best from now on if it is better.

        One that does not fit on the device must fit on the host.
        """
        link = self.link
        found = play(self.program.problem.graph, plan, self.prices, link.device, self.budget, link.host)
        if found.rank < self.best.rank and (fits or not found.host_over_bytes):
            self.best = found
        return found
