"""What planning within a budget gives, and why a budget is not met."""

from dataclasses import dataclass, replace
from typing import Literal

from lowtide.core.index_spaces import Place
from lowtide.core.units import ByteUnit
from lowtide.engine.analysis.folding import named_largest
from lowtide.engine.analysis.lower_bounds import BoundHolder, describe_need, holder_of
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
    shortfall: str | None
    """Why the budget is not met, in one sentence; None when it is."""

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


def explain_shortfall(program: Program, floor: Floor, budget: int, least_peak: int, bound: float) -> str:
    """Name the op and the buffers that alone need more than the budget, or the op whose operands do while they are
    brought together, or say how close the best plan came."""
    graph = program.problem.graph
    where, unit = graph.spaces[program.space].name, ByteUnit(max(least_peak, floor.peak_bytes))
    if floor.peak_bytes <= budget:
        gathering = least_to_gather(program.problem, program.space)
        if gathering.op is not None and gathering.peak_bytes > budget:
            reason = (
                f"bringing the operands of op {graph.described(gathering.op)} together needs "
                f"{unit.write(gathering.peak_bytes)} whatever is run again"
            )
        else:
            reason = "proven impossible for this order" if bound == float("inf") else "no proof that none fits"
        return (
            f"the best plan found needs {unit.write(least_peak)} in {where}, {unit.write(least_peak - budget)} more "
            f"than the budget of {unit.write(budget)}; {reason}"
        )
    if floor.op is None:
        who = "inputs or outputs alone need"
    else:
        who = describe_need(graph, floor.op, program.space, floor.peak_bytes)
    held = [
        replace(holder_of(graph, where, buffer), size_bytes=int(program.counted_sizes[buffer]))
        for buffer in floor.buffers
    ]
    if floor.scratch_bytes:
        held.append(BoundHolder(space=where, name="scratch and callees", size_bytes=floor.scratch_bytes))
    return (
        f"{who} {unit.write(floor.peak_bytes)} in {where} whatever is run again, "
        f"{unit.write(floor.peak_bytes - budget)} more than the budget of {unit.write(budget)}; "
        f"live then: {named_largest(held, unit)}"
    )
