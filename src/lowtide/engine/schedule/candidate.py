"""A plan that one scheduler made, and what making it took."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from lowtide.core.effort import DEFAULT_EFFORT, SEARCH_EFFORTS, EffortName
from lowtide.core.progress import Report
from lowtide.engine.analysis.budget import Budget
from lowtide.engine.analysis.lower_bounds import LowerBound
from lowtide.engine.analysis.problem import Order
from lowtide.engine.graph import Graph
from lowtide.engine.packing import Packing
from lowtide.engine.plan import Plan
from lowtide.engine.schedule.callees import plan_graph, plan_of_order, settle_callees
from lowtide.engine.schedule.compare import compare_key
from lowtide.engine.schedule.search import Search
from lowtide.engine.schedule.table import scheduler
from lowtide.engine.search import Proof, Searched


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The plan of one scheduler for one graph."""

    scheduler: str
    plan: Plan
    key: tuple[int, int]
    """What candidates are compared by, less is better; see `compare_key`."""
    seconds: float
    bounds: tuple[LowerBound, ...] = ()
    """What was proven on the way, per memory space; empty where the scheduler proves nothing."""
    solved: Searched | None = None
    """What the search was asked and what it said, where it was a search: what shows that the bounds hold."""
    packing: Packing | None = None
    """Where the plan's buffers lie, where somebody placed them already."""
    interrupted: bool = False
    """Whether Ctrl-C ended the search before it was done."""

    @property
    def proof(self) -> Proof | None:
        """What shows that the bounds hold, without logs; see `Searched`."""
        return None if self.solved is None else self.solved.proof


def make_candidate(
    name: str,
    graph: Graph,
    *,
    in_place: bool,
    effort: EffortName = DEFAULT_EFFORT,
    budget: Budget | None = None,
    progress: Report | None = None,
    keep: Callable[[Plan], None] | None = None,
) -> Candidate:
    """Plan a graph and its callees with the scheduler of this name; raises UsageError for an unknown name.

    `effort` is how much work a search may do. Only a search heeds a `budget`: if it can, its plan stays within it.
    Where a search takes long, `keep` is handed the best plan so far.
    """
    chosen = scheduler(name)
    started = time.perf_counter()
    if isinstance(chosen, Search):
        chosen = replace(chosen, effort=effort)
        problem = settle_callees(graph, chosen, in_place=in_place)

        def keep_order(order: Order) -> None:
            if keep is not None:
                keep(plan_of_order(problem, order))

        solution = chosen.solve(problem, budget=budget, progress=progress, keep=keep_order)
        solved = Searched(problem=problem, solution=solution, effort=SEARCH_EFFORTS[effort])
        plan, bounds, interrupted = plan_of_order(problem, solution.order), solution.bounds, solution.interrupted
    else:
        plan, bounds, interrupted = plan_graph(graph, chosen, in_place=in_place), (), False
        solved = None
    return Candidate(
        scheduler=name,
        plan=plan,
        key=compare_key(graph, plan.peak_bytes.values()),
        seconds=time.perf_counter() - started,
        bounds=bounds,
        solved=solved,
        interrupted=interrupted,
    )
