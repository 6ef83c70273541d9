"""The first stage: the program as it stands, with the budget and the prices that every plan is held against."""

from dataclasses import replace

from lowtide.core.techniques import refuse_ignored, refuse_without_budget
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.graph import Graph
from lowtide.engine.offload import find_link
from lowtide.engine.plan import Plan
from lowtide.engine.planning.budget import parse_budget
from lowtide.engine.planning.draft import Draft
from lowtide.engine.planning.settings import PlanSettings


def baseline(graph: Graph, settings: PlanSettings, untouched: Graph | None = None) -> Draft:
    """Return the plan of the untouched program, which is the best until a stage finds a better one.

    `untouched` is the program as it stands, where the graph is another way to compute the same: percentages are of its
    peak. Raises UsageError for a budget or costs that cannot be read, and for techniques that would be ignored.
    """
    plan = Plan.baseline(graph)
    plan = replace(plan, peak_bytes=simulate(graph, plan).peak_bytes)
    peak = plan.peak_bytes if untouched is None else simulate(untouched, Plan.baseline(untouched)).peak_bytes
    budget = parse_budget(settings.budget, graph, peak, transient=settings.transient)
    if all(most is None for most in budget.allowed.values()):
        refuse_without_budget(settings.techniques)
    if find_link(graph, 0) is None:
        refuse_ignored(
            settings.techniques,
            {"offload"},
            "offload needs a memory space to copy to and from",
            f"give one of graph {graph.name!r} a bandwidth both ways, by --host-bandwidth or "
            "lowtide.engine.offload.with_host_space",
        )
    return Draft(
        graph=graph,
        settings=settings,
        budget=budget,
        prices=settings.prices(graph),
        untouched_peak_bytes=peak,
        in_chunks=untouched is not None,
        plan=plan,
        problem=Problem(graph, plan.callees, in_place=settings.takes_pairs),
    )
