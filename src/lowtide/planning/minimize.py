"""From a graph to a verified plan, never worse than doing nothing: six stages over one record."""

import time
from collections.abc import Iterable
from dataclasses import replace

from lowtide.costs import Prices, ProfileName
from lowtide.effort import EffortName
from lowtide.graph import Graph
from lowtide.plan import verify
from lowtide.planning.baseline import baseline
from lowtide.planning.budget import GivenBudget
from lowtide.planning.draft import Draft, Keep, stage
from lowtide.planning.judge import judge
from lowtide.planning.order import order
from lowtide.planning.place import place
from lowtide.planning.result import Result, result_of
from lowtide.planning.settings import PlanSettings
from lowtide.planning.trade import trade
from lowtide.progress import Report, silent
from lowtide.techniques import checked_techniques


def minimize(
    graph: Graph,
    *,
    budget: GivenBudget = PlanSettings.budget,
    transient: bool = PlanSettings.transient,
    allow: Iterable[str] = PlanSettings.techniques,
    in_place: bool = PlanSettings.in_place,
    scheduler: str | None = PlanSettings.scheduler,
    costs: ProfileName | Prices = "given",
    effort: EffortName = PlanSettings.effort,
    untouched: Graph | None = None,
    progress: Report | None = None,
) -> Result:
    """Find the plan with the least peak, or one within a budget: the best of all orders, in-place pairs, and addresses.

    `budget` is what the first memory space must hold, persistent buffers included unless it is `transient`, in bytes
    ("8 GiB"), or a percentage of the baseline's peak ("70%"), persistent buffers not included. With a budget the plan
    is not the one of least peak, but one that fits and moves few ops of the program, none where the program fits as it
    stands. Where nothing
    fits it is the one of least peak, which `scheduler="search"` asks for in any case.
    `allow` names the techniques: "reorder" (another order than the given one), "share" (in-place pairs), "recompute"
    (ops may run again, at the least extra cost, where no order fits the budget; see `recompute.compose`), "offload"
    (buffers may visit a memory space that the first one has bandwidth to and from).
    `scheduler` restricts the search to one order by name. `costs` says what ops cost: the graph's own figures
    ("given"), a profile ("eager", "fused"), or prices read from a costs file. `effort` is how much work the search may
    do: "fast", "balanced" or "max". `untouched` is the program as it stands, where the graph is another way to compute
    the same: percentages and the baseline's peak are that program's.

    The plan is verified before it is returned. The status is optimal when the peak meets the lower bound, or within a
    budget the extra cost what any allowed plan costs; `claims` says which plans each bound is of. It is infeasible when
    the bound or a capacity proves that no plan fits, interrupted when Ctrl-C ended the search with the best plan
    so far, else feasible. A plan is returned in every case. Raises UsageError for a bad call.
    """
    settings = PlanSettings(
        budget=budget,
        transient=transient,
        techniques=checked_techniques(allow),
        in_place=in_place,
        scheduler=scheduler,
        costs=costs,
        effort=effort,
    )
    return find_plan(graph, settings, untouched, progress)


def find_plan(
    graph: Graph,
    settings: PlanSettings,
    untouched: Graph | None = None,
    progress: Report | None = None,
    keep: Keep | None = None,
) -> Result:
    """Find the plan that settings ask for; see `minimize`. A host must stand beside the graph already.

    `keep` is handed the best plan so far before whatever may take long.
    """
    started = time.perf_counter()
    report = progress or silent
    draft = replace(baseline(graph, settings, untouched), keep=keep)
    draft = order(draft, report)
    draft = trade(draft, report)
    draft = judge(draft, report)
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
