"""A plan within a budget that stays close to the program order."""

import time
from collections.abc import Callable

from lowtide.core.effort import SEARCH_EFFORTS, EffortName
from lowtide.core.progress import Report
from lowtide.engine.analysis.budget import Budget
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.schedule.callees import plan_of_order, settle_callees
from lowtide.engine.schedule.candidate import Candidate, make_candidate
from lowtide.engine.schedule.compare import compare_key
from lowtide.engine.schedule.search import Search
from lowtide.engine.search import fit_order


def make_candidate_within(
    budget: Budget,
    graph: Graph,
    *,
    in_place: bool,
    effort: EffortName,
    progress: Report,
    keep: Callable[[Plan], None] | None = None,
) -> Candidate:
    """Plan a graph within a budget, moving few ops; where nothing fits, plan for the least peak.

    Only where `fit_order` finds nothing is the search for the least peak asked, which is slower and moves most ops.
    If what it finds is within the budget, that is brought nearer to the program order as well. Where it takes long,
    `keep` is handed its best plan so far.
    """
    started = time.perf_counter()
    progress(f"fitting {graph.n_ops} ops into the budget")
    problem = settle_callees(graph, Search(effort=effort), in_place=in_place)
    found = fit_order(problem, budget, problem.given_order(), SEARCH_EFFORTS[effort])
    if found.order is None:
        best = make_candidate(
            "search", graph, in_place=in_place, effort=effort, budget=budget, progress=progress, keep=keep
        )
        if best.interrupted or budget.excess_bytes(best.plan.peak_bytes):
            return best
        found = fit_order(problem, budget, problem.given_order(), SEARCH_EFFORTS[effort], known=[best.plan.order()])
        if found.order is None:
            return best
    plan = plan_of_order(problem, found.order)
    return Candidate(
        scheduler="fit",
        plan=plan,
        key=compare_key(graph, plan.peak_bytes.values()),
        seconds=time.perf_counter() - started,
    )
