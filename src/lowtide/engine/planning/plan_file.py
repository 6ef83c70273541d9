"""Plans from files in the place of plans made now: read for a program, verified, and priced by its settings."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from lowtide.core.errors import FingerprintError, VerificationError
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, read_plan_file
from lowtide.engine.planning.baseline import baseline
from lowtide.engine.planning.chunked import Chunkable, forms_of, is_to_rounding
from lowtide.engine.planning.result import Result, result_of
from lowtide.engine.planning.settings import PlanSettings

_FROM_FILE = "plan file"


def read_plan(path: Path, model: Chunkable, *, over_budget: bool = False) -> tuple[Graph, Plan]:
    """Read and verify a plan file; return the plan, and the graph that it is for: the model's own or one in chunks.

    Raises FingerprintError for a plan of none of them, VerificationError for one that claims something of another, and
    for one that says itself that it does not fit, unless `over_budget`; and what `read_plan_file` raises.
    """
    graph, plan = _read_plan(path, model)
    in_chunks = graph is not model.graph
    if any(claim.in_chunks != in_chunks for claim in plan.claims):
        raise VerificationError(
            f"{path}: the plan is for the program {_form(in_chunks)}, but claims something of the program "
            f"{_form(not in_chunks)}; correct the claim, or plan again"
        )
    if plan.status == "infeasible" and not over_budget:
        raise VerificationError(
            f"{path}: the plan says itself that it is infeasible, so it does not fit the budget or capacity that it "
            "was made for; plan with more memory, or accept it as it is (--allow-over-budget, over_budget=True)"
        )
    return graph, plan


def _form(in_chunks: bool) -> str:
    return "in chunks" if in_chunks else "as it stands"


def _read_plan(path: Path, model: Chunkable) -> tuple[Graph, Plan]:
    graph = model.graph
    for graph in forms_of(model):
        with suppress(FingerprintError):
            return graph, read_plan_file(path, graph)
    return graph, read_plan_file(path, graph)


def result_of_file(path: Path, model: Chunkable, settings: PlanSettings, *, over_budget: bool = False) -> Result:
    """Read the plan of a program, verify it, and price it as if these settings had just made it.

    Raises what `read_plan` raises; a plan that did not fit when it was made says so in its shortfall.
    """
    graph, plan = read_plan(path, model, over_budget=over_budget)
    infeasible = plan.status == "infeasible"
    shortfall = f"the plan in {path} did not fit its budget when it was made" if infeasible else None
    untouched = None if graph is model.graph else model.graph
    result = result_with(graph, plan, settings, _FROM_FILE, shortfall, untouched)
    return replace(result, to_rounding=is_to_rounding(graph, model))


def result_with(
    graph: Graph,
    plan: Plan,
    settings: PlanSettings,
    scheduler: str,
    shortfall: str | None,
    untouched: Graph | None = None,
    seconds: float = 0.0,
) -> Result:
    """Price a verified plan as if these settings had just made it; making it took `seconds`."""
    draft = baseline(graph, settings, untouched).taking(plan)
    prices = draft.prices.seconds
    draft = replace(
        draft,
        scheduler=scheduler,
        extra_cost=float(prices[plan.order()].sum() - prices.sum()),
        extra_cost_bound=None,
        shortfall=shortfall,
    )
    return result_of(draft, seconds)
