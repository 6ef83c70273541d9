"""A plan within a budget that stays close to the program order."""

import time
from collections.abc import Callable, Sequence

from lowtide.effort import EffortName
from lowtide.graph import Graph
from lowtide.schedule.callees import plan_of_order, settle_callees
from lowtide.schedule.candidate import Candidate, make_candidate
from lowtide.schedule.compare_key import compare_key
from lowtide.schedule.search import Search
from lowtide.search import EFFORTS, fit_order
from lowtide.search.fit import UNLIMITED


def make_candidate_within(
    limits: Sequence[int | None],
    graph: Graph,
    *,
    in_place: bool,
    effort: EffortName,
    progress: Callable[[str], None],
) -> Candidate:
    """Plan a graph within `limits`, bytes per memory space, moving few ops; where nothing fits, for the least peak.

    The search for the least peak, which is slower and moves most ops, is asked only where `fit_order` finds nothing.
    What it finds within the limits is brought nearer to the program order as well.
    """
    started = time.perf_counter()
    budget = [UNLIMITED if limit is None else limit for limit in limits]
    progress(f"fitting {graph.n_ops} ops into the budget")
    problem = settle_callees(graph, Search(effort=effort), in_place=in_place)
    found = fit_order(problem, budget, problem.given_order(), EFFORTS[effort])
    if found.order is None:
        best = make_candidate("search", graph, in_place=in_place, effort=effort, limits=limits, progress=progress)
        fits = all(peak <= most for peak, most in zip(best.plan.peak_bytes.values(), budget, strict=True))
        if best.interrupted or not fits:
            return best
        found = fit_order(problem, budget, problem.given_order(), EFFORTS[effort], known=[best.plan.order()])
        if found.order is None:
            return best
    plan = plan_of_order(problem, found.order)
    return Candidate(
        scheduler="fit",
        plan=plan,
        key=compare_key(graph, plan.peak_bytes.values()),
        seconds=time.perf_counter() - started,
    )
