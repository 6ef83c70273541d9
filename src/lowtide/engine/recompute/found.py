"""The best that a search knows for one budget."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lowtide.core.index_spaces import Place
from lowtide.engine.recompute.all_runs import AllRuns
from lowtide.engine.recompute.choose_drops import drop_until_it_fits
from lowtide.engine.recompute.program import Drops, Execution, Program
from lowtide.engine.recompute.telling_places import Telling

_TRIFLE = 0.001
_WORTH_TRIMMING = 1.25


@dataclass(slots=True, eq=False)
class Found:
    """The best plan for one budget, what bounds its cost, and what was spent."""

    budget: int
    drops: Drops
    """The best drops that were played."""
    played_drops: Execution
    bound: float = 0.0
    peak_bound: int = 0
    negligible: float = 0.0
    """The extra cost above its bound that is not worth looking for less than."""
    is_open: bool = False
    """Whether better plans may be found in other ways."""
    is_rough: bool = False
    """Whether plans of drops alone, without those of repeated layers, are far from their bound."""
    is_of_layers: bool = False
    """Whether the best plan of repeated layers is near the bound of a large program, so that no other is looked for."""
    is_settled: bool = False
    """Whether all runs were searched, so that nothing better is left to find."""
    work: int = 0
    played: int = 0
    places: list[Place] = field(default_factory=list[int])
    telling: Sequence[Telling] | None = None
    """What single places show, the dearest first; None before they are weighed."""
    execution: Execution = field(init=False)
    """The best plan of all: what the drops give, or other runs."""

    def __post_init__(self) -> None:
        self.execution = self.played_drops

    @property
    def fits(self) -> bool:
        """Whether some plan meets the budget."""
        return self.execution.peak_bytes <= self.budget

    @property
    def may_fit(self) -> bool:
        """Whether nothing shows that no plan meets the budget."""
        return self.bound < float("inf")

    @property
    def most_worth_trimming(self) -> float:
        """The extra cost up to which other plans may become better when reruns are left out."""
        return _WORTH_TRIMMING * self.execution.extra_cost if self.fits else float("inf")

    def rank(self, execution: Execution) -> tuple[int, float, int]:
        """What executions are compared by, less is better: bytes over the budget, then cost, then peak."""
        over = max(0, execution.peak_bytes - self.budget)
        return over, execution.extra_cost, execution.peak_bytes

    def raise_bound(self, program: Program, bound: float) -> None:
        """Raise the bound to a new one, and to the next sum of costs where all costs are multiples of the least one."""
        positive = program.cost[program.cost > 0]
        unit = float(positive.min(initial=np.inf))
        if np.isfinite(unit + bound) and not (positive % unit).any():
            bound = float(np.ceil(bound / unit)) * unit
        self.bound = max(self.bound, bound)

    def offer(self, execution: Execution, drops: Drops | None = None) -> None:
        """Take an execution where it is better, and the drops that it plays."""
        rank = self.rank(execution)
        if drops is not None and rank < self.rank(self.played_drops):
            self.drops, self.played_drops = drops, execution
        if rank < self.rank(self.execution):
            self.execution = execution

    def take(self, program: Program, searched: AllRuns) -> None:
        """Take what a search of all runs showed, for a program whose first runs are in the order of those found."""
        self.bound = max(self.bound, searched.cost_bound)
        self.peak_bound = searched.peak_bound
        self.is_settled = searched.is_settled
        if searched.runs is not None:
            self.offer(program.replay(searched.runs))
            if self.fits and self.is_settled:
                self.bound = self.execution.extra_cost

    def learn(self, other: "Found") -> None:
        """Take what bounds another plan for the same budget with first runs in the same order."""
        if other.bound > self.bound:
            self.bound, self.places = other.bound, other.places
        self.peak_bound = max(self.peak_bound, other.peak_bound)

    def progress(self) -> tuple[int, float, float]:
        """What the search moves: bytes over the budget, extra cost and its bound."""
        return max(0, self.execution.peak_bytes - self.budget), self.execution.extra_cost, self.bound

    def has_moved(self, since: tuple[int, float, float]) -> bool:
        """Tell whether more than a trifle was gained since."""
        over, cost, bound = since
        now_over, now_cost, now_bound = self.progress()
        return now_over < over or now_cost < cost * (1 - _TRIFLE) or now_bound * (1 - _TRIFLE) > bound

    def is_within(self, gap: float) -> bool:
        """Whether the budget is met at a cost that close to its bound, or so close that the rest does not count."""
        cost = self.execution.extra_cost
        return self.fits and cost - self.bound <= max(gap * cost, self.negligible)


def repair(program: Program, found: Found, drops: Drops, max_work: int) -> None:
    """Offer the plan of given drops with more added until it fits."""
    before = program.native.work
    _, drops = drop_until_it_fits(program, drops, found.budget, max_work)
    found.offer(program.execute(drops), drops)
    found.played += program.native.work - before
