"""From a graph to a verified plan, never worse than doing nothing: seven stages over one record."""

import time
from dataclasses import replace

from lowtide.core.collection import without_collection
from lowtide.core.progress import Report, silent
from lowtide.engine.graph import Graph
from lowtide.engine.plan import verify
from lowtide.engine.planning.baseline import baseline
from lowtide.engine.planning.draft import Draft, Keep, stage
from lowtide.engine.planning.judge import judge
from lowtide.engine.planning.order import order
from lowtide.engine.planning.overlap import overlap
from lowtide.engine.planning.place import place
from lowtide.engine.planning.result import Result, result_of
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.planning.trade import trade


@without_collection()
def find_plan(
    graph: Graph,
    settings: PlanSettings,
    untouched: Graph | None = None,
    progress: Report | None = None,
    keep: Keep | None = None,
) -> Result:
    """Find the plan that settings ask for; see `lowtide.minimize`. A host must stand beside the graph already.

    `untouched` is the program as it stands, where the graph is another way to compute the same: percentages and the
    baseline's peak are that program's. `keep` is handed the best plan so far before whatever may take long.
    """
    started = time.perf_counter()
    report = progress or silent
    draft = replace(baseline(graph, settings, untouched), keep=keep)
    draft = order(draft, report)
    draft = trade(draft, report)
    draft = judge(draft, report)
    draft = overlap(draft, report)
    draft = place(draft, report)
    draft = verified(draft, report)
    return result_of(draft, time.perf_counter() - started)


@stage
def verified(draft: Draft, report: Report) -> Draft:
    """Return the draft once its plan is verified, whatever the stages before claim."""
    plan = replace(draft.plan, status="interrupted") if draft.interrupted else draft.plan
    report("verifying the plan")
    verify(draft.graph, plan, check_capacity=False)
    return replace(draft, plan=plan)
