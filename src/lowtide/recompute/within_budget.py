"""The budgeted planner: the least extra cost within a byte budget, with proof of how close it is."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lowtide.analysis.problem import Order, Problem
from lowtide.effort import DEFAULT_EFFORT, EffortName
from lowtide.errors import UsageError
from lowtide.plan import verify
from lowtide.recompute import solver
from lowtide.recompute.cut_model import CutModel
from lowtide.recompute.effort import EFFORTS, Effort
from lowtide.recompute.floor import Floor, floor_of
from lowtide.recompute.greedy import drop_until_it_fits
from lowtide.recompute.program import Cuts, Execution, Program
from lowtide.recompute.result import RecomputeResult

_MOST_NAMED = 4


def plan_within_budget(
    problem: Problem,
    order: Order,
    budget_bytes: int,
    *,
    cost: NDArray[np.float64] | None = None,
    space: int = 0,
    effort: EffortName = DEFAULT_EFFORT,
    exact: bool = True,
    start: Sequence[Cuts] = (),
) -> RecomputeResult:
    """Return a verified plan of least extra cost whose peak is within the budget, and a bound on that cost.

    `order` is the order of first executions, `cost` what running an op again costs (default: the ops' own costs),
    `budget_bytes` the most live bytes in memory space `space`, persistent buffers left out. A greedy plan comes first;
    with HiGHS (extra "exact", and `exact`) a mixed-integer program over the places where memory is short follows
    (`cut_model`): its bound is a bound for every plan, its solution is played, and where that needs more than the
    budget, the place is counted too. `start` holds cuts of other budgets to start from. Deterministic: limits count
    work.
    Raises UsageError for a budget below zero or costs that are negative, not finite or not one per op.
    """
    program = Program(problem, order, checked_cost(problem, cost), space)
    return BudgetSearch(program).plan(budget_bytes, EFFORTS[effort], exact=exact, start=start)


def checked_cost(problem: Problem, cost: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return costs as the kernels take them, the graph's own by default."""
    costs = np.ascontiguousarray(problem.graph.cost if cost is None else cost, np.float64)
    if costs.shape != (problem.graph.n_ops,):
        raise UsageError(f"costs have shape {costs.shape}; give one for each of the {problem.graph.n_ops} ops")
    if not (np.isfinite(costs) & (costs >= 0)).all():
        op = int(np.argmin(np.isfinite(costs) & (costs >= 0)))
        raise UsageError(f"op {problem.graph.op_names[op]!r} has cost {costs[op]}; costs are finite and not below zero")
    return costs


@dataclass(slots=True, eq=False)
class _Found:
    """The best that is known for one budget."""

    budget: int
    cuts: Cuts
    execution: Execution
    bound: float = 0.0
    work: int = 0
    places: list[int] = field(default_factory=list[int])

    @property
    def fits(self) -> bool:
        return self.execution.peak_bytes <= self.budget

    def rank(self, execution: Execution) -> tuple[int, float, int]:
        """What executions are compared by, less is better: bytes over the budget, then cost, then peak."""
        over = max(0, execution.peak_bytes - self.budget)
        return over, execution.extra_cost, execution.peak_bytes

    def offer(self, cuts: Cuts, execution: Execution) -> None:
        if self.rank(execution) < self.rank(self.execution):
            self.cuts, self.execution = cuts, execution

    def is_within(self, gap: float) -> bool:
        cost = self.execution.extra_cost
        return self.fits and cost - self.bound <= gap * cost


class BudgetSearch:
    """Plans one program for any number of budgets; what does not depend on the budget is derived once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.floor: Floor = floor_of(program)
        self.untouched: Execution = program.execute(Cuts())
        self._model: CutModel | None = None

    def plan(self, budget: int, effort: Effort, *, exact: bool, start: Sequence[Cuts] = ()) -> RecomputeResult:
        """Plan for one budget; see `plan_within_budget`."""
        if budget < 0:
            raise UsageError(
                f"a budget of {budget} bytes is below zero; persistent buffers alone may be over the budget"
            )
        found = _Found(budget, Cuts(), self.untouched)
        exact = exact and solver.is_available()
        if self.floor.peak_bytes > budget:
            found.bound = float("inf")
        elif not found.fits:
            for cuts in (Cuts(), *start):
                self._repair(found, cuts)
            if exact:
                self._close_the_gap(found, effort)
        return self._result(found, exact)

    def _repair(self, found: _Found, cuts: Cuts) -> None:
        _, cuts = drop_until_it_fits(self.program, cuts, found.budget)
        found.offer(cuts, self.program.execute(cuts))

    def _close_the_gap(self, found: _Found, effort: Effort) -> None:
        """Solve the program over ever more places until the cost is close to its bound, or the work is used up."""
        model = self._model = self._model or CutModel(self.program)
        found.places = self._first_places(found)
        for _ in range(effort.rounds):
            built = model.build(found.places, found.budget)
            known = built.solution(self.program, found.execution) if found.fits else None
            solved = solver.solve(
                built.milp, known, relative_gap=effort.relative_gap / 2, max_work=effort.solver_work - found.work
            )
            found.work += solved.work
            found.bound = max(found.bound, self._rounded(solved.lower_bound))
            if solved.solution is None:
                return
            cuts = built.cuts(self.program, solved.solution)
            execution = self.program.execute(cuts)
            found.offer(cuts, execution)
            if execution.peak_bytes > found.budget:
                self._repair(found, cuts)
            place = self._next_place(execution, found)
            if found.is_within(effort.relative_gap) or place is None or found.work >= effort.solver_work:
                return
            found.places = sorted([*found.places, place])

    def _rounded(self, bound: float) -> float:
        """Round a bound up to the next sum of costs, where all costs are multiples of the least one."""
        positive = self.program.cost[self.program.cost > 0]
        unit = float(positive.min(initial=np.inf))
        if not np.isfinite(unit + bound) or (positive % unit).any():
            return bound
        return float(np.ceil(bound / unit)) * unit

    def _first_places(self, found: _Found) -> list[int]:
        """The place of the untouched peak, and those where the greedy plan had to drop more."""
        n = self.program.problem.graph.n_ops
        places = [int(self.untouched.live.argmax())]
        return sorted({*places, *(min(int(moment) // 2, n - 1) for moment in found.cuts.moments[:2])})

    def _next_place(self, execution: Execution, found: _Found) -> int | None:
        """The place where an execution is most over budget, a first run if there is one, not counted yet."""
        is_first = self.program.places[execution.runs] == execution.stages
        counted = np.isin(execution.stages, found.places)
        for eligible in (is_first & ~counted, ~counted & (execution.stages < len(self.program.order))):
            over = np.where(eligible, execution.live, 0)
            if over.size and over.max() > found.budget:
                return int(execution.stages[int(over.argmax())])
        return None

    def _result(self, found: _Found, exact: bool) -> RecomputeResult:
        graph, execution = self.program.problem.graph, found.execution
        plan = self.program.plan(execution)
        verify(graph, plan, check_capacity=False)
        return RecomputeResult(
            plan=plan,
            cuts=found.cuts,
            budget_bytes=found.budget,
            peak_bytes=execution.peak_bytes,
            fits=found.fits,
            base_cost=float(self.program.cost.sum()),
            extra_cost=execution.extra_cost,
            extra_cost_bound=min(found.bound, execution.extra_cost) if found.fits else found.bound,
            floor=self.floor,
            method="exact" if exact else "greedy",
            work=found.work,
            places=tuple(found.places),
            shortfall=None if found.fits else self._shortfall(found),
        )

    def _shortfall(self, found: _Found) -> str:
        graph, floor, budget = self.program.problem.graph, self.floor, found.budget
        where = graph.spaces[self.program.space].name
        if floor.peak_bytes <= budget:
            reason = "proven impossible for this order" if found.bound == float("inf") else "no proof that none fits"
            return (
                f"the best plan found needs {found.execution.peak_bytes} bytes in {where}, "
                f"{found.execution.peak_bytes - budget} more than the budget of {budget}; {reason}"
            )
        who = "inputs or outputs alone need" if floor.op is None else f"op {graph.op_names[floor.op]!r} alone needs"
        named = [f"{graph.buffer_names[b]} ({self.program.counted_sizes[b]})" for b in floor.buffers[:_MOST_NAMED]]
        rest = floor.buffers[_MOST_NAMED:]
        if rest:
            named.append(f"{len(rest)} more ({int(self.program.counted_sizes[list(rest)].sum())})")
        if floor.scratch_bytes:
            named.append(f"scratch and callees ({floor.scratch_bytes})")
        return (
            f"{who} {floor.peak_bytes} bytes in {where} whatever is run again, {floor.peak_bytes - budget} more than "
            f"the budget of {budget}; live then: {', '.join(named)}"
        )
