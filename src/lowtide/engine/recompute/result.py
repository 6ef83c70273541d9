"""The result of planning within a budget."""

from dataclasses import dataclass, replace
from typing import Literal

from lowtide.core.index_spaces import Place
from lowtide.engine.analysis.budget import Shortfall
from lowtide.engine.analysis.lower_bounds import BoundHolder, holder_of, own_bytes
from lowtide.engine.plan import Plan
from lowtide.engine.recompute.floor import Floor, least_to_gather
from lowtide.engine.recompute.program import Drops, OrderedProgram
from lowtide.engine.recompute.prove_cost import ProvableCost

Method = Literal["greedy", "exact"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecomputeResult:
    """A plan for a base order and a budget, and a bound on its extra cost."""

    plan: Plan
    """Within the budget if `fits`, else of the lowest peak found."""
    drops: Drops
    """The best found, to start another search from."""
    budget_bytes: int
    peak_bytes: int
    """Peak in the budget's memory space, without persistent buffers."""
    fits: bool
    base_cost: float
    extra_cost: float
    extra_cost_bound: float
    """Lower bound for plans with this order of first runs, if random, ordered and mutating ops run once. Infinite if
    none fits."""
    solver_bound: float | None = None
    """The solver's unproven higher bound."""
    provable_cost: ProvableCost | None = None
    """The bound as a proof can show it; None if another search found it."""
    floor: Floor
    peak_bound: int
    """Lower bound with this order of first runs."""
    holds_for_any_order: bool = False
    method: Method
    """"exact" if HiGHS or the exact search was used."""
    work: int
    places: tuple[Place, ...]
    """Places that the bound counts memory at."""
    shortfall: Shortfall | None

    @property
    def rank(self) -> tuple[int, float, int]:
        """Sort key: bytes over the budget, extra cost, peak."""
        return self.rank_within(self.budget_bytes)

    def rank_within(self, budget_bytes: int) -> tuple[int, float, int]:
        """Return the sort key for another budget."""
        return max(0, self.peak_bytes - budget_bytes), self.extra_cost, self.peak_bytes

    @property
    def gap(self) -> float:
        """Extra cost above its bound, relative to the extra cost."""
        if not self.fits or self.extra_cost <= self.extra_cost_bound:
            return 0.0
        return (self.extra_cost - self.extra_cost_bound) / self.extra_cost

    @property
    def status(self) -> Literal["optimal", "feasible", "infeasible", "stopped_by_work"]:
        """ "infeasible" if no plan fits, "stopped_by_work" if none was found."""
        if self.extra_cost_bound == float("inf"):
            return "infeasible"
        if not self.fits:
            return "stopped_by_work"
        return "optimal" if self.extra_cost <= self.extra_cost_bound else "feasible"


def explain_shortfall(program: OrderedProgram, floor: Floor, budget: int, lowest_peak: int, bound: float) -> Shortfall:
    """Return why a base order's lowest peak misses the budget."""
    problem, graph = program.problem, program.problem.graph
    space = graph.spaces[program.space].name
    missed = Shortfall(space=space, allowed_bytes=budget, reached_bytes=lowest_peak, cause="not found")
    if floor.peak_bytes <= budget:
        gathering = least_to_gather(problem, program.space)
        if gathering.op is not None and gathering.peak_bytes > budget:
            op, needed = graph.described(gathering.op), gathering.peak_bytes
            return replace(missed, cause="operands of an op", op=op, needed_bytes=needed)
        return replace(missed, cause="base order") if bound == float("inf") else missed
    live = [
        replace(holder_of(graph, space, buffer), size_bytes=int(program.counted_sizes[buffer]))
        for buffer in floor.buffers
    ]
    if floor.scratch_bytes:
        live.append(BoundHolder(space=space, name="scratch and callees", size_bytes=floor.scratch_bytes))
    missed = replace(missed, needed_bytes=floor.peak_bytes, holders=tuple(live))
    if floor.op is None:
        return replace(missed, cause="inputs and outputs")
    own = own_bytes(graph, floor.op, program.space)
    return replace(missed, cause="op", op=graph.described(floor.op), op_bytes=own)
