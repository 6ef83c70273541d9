"""The best plan found for one budget."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from lowtide.core.index_spaces import Place
from lowtide.engine.recompute.choose_drops import PlaceBound, drop_until_it_fits
from lowtide.engine.recompute.exact_search import ExactResult
from lowtide.engine.recompute.program import Drops, Execution, OrderedProgram, before_rounding, cost_unit

_LEAST_GAIN = 0.001
_TRIM_COST_RATIO = 1.25
_RELATIVE_ERROR = 1e-6
"""Subtracted from bounds, so that inexact duals can prove them."""
_TRADE_ERROR = 1e-11
"""Rounding error of `trade_at`, relative to the cost of all ops."""


@dataclass(slots=True, eq=False)
class BestPlan:
    """The best plan for one budget, cost bounds, and the work spent."""

    budget: int
    drops: Drops
    drops_execution: Execution
    bound: float = 0.0
    """Proven lower bound on the extra cost."""
    peak_bound: int = 0
    negligible: float = 0.0
    max_drop_cost: float = float("inf")
    may_improve: bool = False
    may_be_lower: bool = False
    is_far_from_bound: bool = False
    """Ignores plans of repeated layers."""
    layers_suffice: bool = False
    """Whether repeated layers end a large program's search."""
    is_exact: bool = False
    """Whether an exact search proved that no better plan exists."""
    claimed_bound: float = 0.0
    """Unproven bound that steers the search; never published."""
    claimed_places: tuple[Place, ...] = ()
    """Places that the solver's highest bound counts."""
    bound_places: tuple[Place, ...] = ()
    """Places of the linear program that shows `bound`, if any."""
    solver_work: int = 0
    play_work: int = 0
    places: list[Place] = field(default_factory=list[int])
    first_plans: "tuple[BestPlan, BestPlan] | None" = None
    """Plans from the peak and from repeated layers, until `choose_drops`."""
    misses: list[Execution] = field(default_factory=list["Execution"])
    """Plans over the budget, by rising peak and falling cost."""
    improved: Execution | None = None
    place_bounds: Sequence[PlaceBound] | None = None
    """Bounds from single places, highest first."""
    execution: Execution = field(init=False)

    def __post_init__(self) -> None:
        self.execution = self.drops_execution

    @property
    def fits(self) -> bool:
        return self.execution.peak_bytes <= self.budget

    @property
    def cost(self) -> float:
        """Extra cost, infinite if the plan misses the budget."""
        return self.execution.extra_cost if self.fits else float("inf")

    @property
    def first_rank(self) -> tuple[int, float, int]:
        first = self if self.first_plans is None else self.first_plans[1]
        return first.rank(first.execution)

    @property
    def may_fit(self) -> bool:
        return self.steering_bound < float("inf")

    @property
    def steering_bound(self) -> float:
        return max(self.bound, self.claimed_bound)

    @property
    def max_cost_to_trim(self) -> float:
        return _TRIM_COST_RATIO * self.cost

    def at(self, execution: Execution) -> "BestPlan":
        other = copy(self)
        other.execution = execution
        return other

    def rank(self, execution: Execution) -> tuple[int, float, int]:
        """Return the sort key: bytes over the budget, extra cost, peak."""
        over = max(0, execution.peak_bytes - self.budget)
        return over, execution.extra_cost, execution.peak_bytes

    def raise_bound(self, program: OrderedProgram, bound: float, place: Place) -> None:
        self.claim_bound(program, bound)
        error = _TRADE_ERROR * float(program.cost.sum()) + _RELATIVE_ERROR * bound
        self.raise_to_certified(program, bound - error, (place,))

    def raise_to_certified(self, program: OrderedProgram, bound: float, places: tuple[Place, ...]) -> None:
        """Raise the cost bound to one free of rounding errors."""
        bound = rounded_up(program, bound)
        if bound > self.bound:
            self.bound, self.bound_places = bound, places

    @property
    def solver_bound(self) -> float | None:
        """The solver's bound if above the proven one."""
        claimed = min(self.claimed_bound, self.cost)
        return claimed if self.claimed_places and claimed > self.bound else None

    def goal_to_certify(self, program: OrderedProgram) -> float:
        """Return the least bound that, rounded up, proves the claimed one or optimality."""
        return before_rounding(min(self.claimed_bound, self.cost), program.cost)

    def claim_bound(self, program: OrderedProgram, bound: float, places: Sequence[Place] = ()) -> None:
        """Let an unproven bound steer the search."""
        bound = rounded_up(program, bound)
        if bound > self.steering_bound and places:
            self.claimed_places = tuple(places)
        self.claimed_bound = max(self.claimed_bound, bound)

    def offer(self, execution: Execution, drops: Drops | None = None) -> None:
        rank = self.rank(execution)
        if drops is not None and rank < self.rank(self.drops_execution):
            self.drops, self.drops_execution = drops, execution
        if rank[0]:
            self._add_miss(execution)
        if rank < self.rank(self.execution):
            self.execution = execution

    def _add_miss(self, execution: Execution) -> None:
        peak, cost = execution.peak_bytes, execution.extra_cost
        if not any(each.peak_bytes <= peak and each.extra_cost <= cost for each in self.misses):
            others = [each for each in self.misses if each.peak_bytes < peak or each.extra_cost < cost]
            self.misses = sorted([*others, execution], key=lambda each: each.peak_bytes)

    def add_exact_result(self, program: OrderedProgram, searched: ExactResult) -> None:
        if searched.cost_bound > self.bound:
            self.bound, self.bound_places = searched.cost_bound, ()
        self.peak_bound = searched.peak_bound
        self.is_exact = searched.is_exact
        if searched.runs is not None:
            self.offer(program.replay(searched.runs))
            if self.fits and self.is_exact:
                self.bound, self.bound_places = self.execution.extra_cost, ()

    def share_bounds(self, other: "BestPlan") -> None:
        """Accept the bounds for the same order of first runs."""
        if other.steering_bound > self.steering_bound:
            self.places, self.claimed_places = other.places, other.claimed_places
        if other.bound > self.bound:
            self.bound, self.bound_places = other.bound, other.bound_places
        self.claimed_bound = max(self.claimed_bound, other.claimed_bound)
        self.peak_bound = max(self.peak_bound, other.peak_bound)

    def progress(self) -> tuple[int, float, float]:
        return max(0, self.execution.peak_bytes - self.budget), self.execution.extra_cost, self.steering_bound

    def has_improved_since(self, since: tuple[int, float, float]) -> bool:
        over, cost, bound = since
        now_over, now_cost, now_bound = self.progress()
        return now_over < over or now_cost < cost * (1 - _LEAST_GAIN) or now_bound * (1 - _LEAST_GAIN) > bound

    def is_within(self, gap: float) -> bool:
        """Whether the plan fits at a cost near the bound."""
        cost = self.execution.extra_cost
        return self.fits and cost - self.steering_bound <= max(gap * cost, self.negligible)


def rounded_up(program: OrderedProgram, bound: float) -> float:
    """Round a cost bound up if all costs are multiples of the smallest one."""
    unit = cost_unit(program.cost)
    return float(np.ceil(bound / unit)) * unit if unit and np.isfinite(bound) else bound


def repair(program: OrderedProgram, found: BestPlan, drops: Drops, max_work: int) -> None:
    """Add drops until a plan fits, and offer it."""
    before = program.native.work
    most = min(found.max_drop_cost, found.max_cost_to_trim)
    _, drops = drop_until_it_fits(program, drops, found.budget, max_work, most)
    found.offer(program.execute(drops), drops)
    found.play_work += program.native.work - before
