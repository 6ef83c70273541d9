"""What planning within a budget gives, and why a budget is not met."""

from dataclasses import dataclass, replace
from typing import Literal

from lowtide.core.index_spaces import Place
from lowtide.engine.analysis.bound_holders import BoundHolder, holder_of
from lowtide.engine.analysis.own_bytes import own_bytes
from lowtide.engine.analysis.shortfall import Shortfall
from lowtide.engine.plan import Plan
from lowtide.engine.recompute.floor import Floor
from lowtide.engine.recompute.gathering import least_to_gather
from lowtide.engine.recompute.program import Drops, Program

Method = Literal["greedy", "exact"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecomputeResult:
    """A plan for a base order and a budget, its price, and how far the price is from the best possible."""

    plan: Plan
    """Never over the budget where `fits`; else the one of least peak that was found."""
    drops: Drops
    """The best drops found, to start another search from; the plan itself may be an even better one."""
    budget_bytes: int
    peak_bytes: int
    """Peak of the plan in the memory space the budget is for, persistent buffers left out."""
    fits: bool
    base_cost: float
    """Cost of running every op once, in the unit of the costs."""
    extra_cost: float
    """Cost of all that runs again."""
    extra_cost_bound: float
    """What any plan within the budget costs at least if its first runs keep the base order and random, ordered and
    mutating ops run once; infinite if none fits."""
    floor: Floor
    peak_bound: int
    """No plan for the same first runs needs fewer bytes: the floor, or more where a search showed it."""
    is_of_any_order: bool = False
    """Whether both bounds hold for first runs in any order."""
    method: Method
    """"exact" where HiGHS took part or all runs were searched, "greedy" without."""
    work: int
    """Work of the solver."""
    places: tuple[Place, ...]
    """The places in the base order whose memory the bound counts."""
    shortfall: Shortfall | None
    """Why the budget is missed; None if it is met."""

    @property
    def rank(self) -> tuple[int, float, int]:
        """What results for one budget are compared by, less is better: bytes over it, extra cost, peak."""
        return max(0, self.peak_bytes - self.budget_bytes), self.extra_cost, self.peak_bytes

    @property
    def gap(self) -> float:
        """Extra cost above its bound, relative to the extra cost; 0 where it is proven least."""
        if not self.fits or self.extra_cost <= self.extra_cost_bound:
            return 0.0
        return (self.extra_cost - self.extra_cost_bound) / self.extra_cost

    @property
    def status(self) -> Literal["optimal", "feasible", "infeasible", "stopped_by_work"]:
        """Optimal when the cost meets its bound, infeasible when the bound proves that no plan fits, stopped_by_work
        when none was found, else feasible."""
        if self.extra_cost_bound == float("inf"):
            return "infeasible"
        if not self.fits:
            return "stopped_by_work"
        return "optimal" if self.extra_cost <= self.extra_cost_bound else "feasible"


def explain_shortfall(program: Program, floor: Floor, budget: int, lowest_peak: int, bound: float) -> Shortfall:
    """Return why the lowest peak found for a base order misses the budget.

    The cause is the op whose tensors alone exceed the budget, the op whose operands do while they are made, or none if
    nothing is proven.
    """
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
