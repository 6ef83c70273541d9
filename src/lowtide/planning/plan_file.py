"""Plans from files in the place of plans made now: read for a program, verified, and priced by its settings."""

from dataclasses import replace
from pathlib import Path

from lowtide.errors import FingerprintError, VerificationError
from lowtide.graph import Graph
from lowtide.plan import Plan, read_plan_file
from lowtide.planning.baseline import baseline
from lowtide.planning.chunked import Chunkable
from lowtide.planning.result import Result, result_of
from lowtide.planning.settings import PlanSettings

_FROM_FILE = "plan file"


def read_plan(path: Path, model: Chunkable, *, over_budget: bool = False) -> tuple[Graph, Plan]:
    """Read and verify a plan file; return the plan, and the graph that it is for: the model's own or that in chunks.

    Raises FingerprintError for a plan of neither, VerificationError unless `over_budget` for one that says itself that
    it does not fit, and what `lowtide.plan.read_plan_file` raises.
    """
    graph, plan = _read_plan(path, model)
    if plan.status == "infeasible" and not over_budget:
        raise VerificationError(
            f"{path}: the plan says itself that it is infeasible, so it does not fit the budget or capacity that it "
            "was made for; plan with more memory, or accept it as it is with --allow-over-budget"
        )
    return graph, plan


def _read_plan(path: Path, model: Chunkable) -> tuple[Graph, Plan]:
    try:
        return model.graph, read_plan_file(path, model.graph)
    except FingerprintError:
        if model.in_chunks is None:
            raise
    return model.in_chunks, read_plan_file(path, model.in_chunks)


def result_of_file(path: Path, model: Chunkable, settings: PlanSettings) -> Result:
    """Read the plan of a program, verify it, and price it as if these settings had just made it.

    Raises what `read_plan` raises; a plan that did not fit when it was made is taken, and says so.
    """
    graph, plan = read_plan(path, model, over_budget=True)
    draft = baseline(graph, settings, None if graph is model.graph else model.graph).taking(plan)
    seconds = draft.prices.seconds
    infeasible = plan.status == "infeasible"
    draft = replace(
        draft,
        scheduler=_FROM_FILE,
        extra_cost=float(seconds[plan.order()].sum() - seconds.sum()),
        extra_cost_bound=None,
        shortfall=f"the plan in {path} did not fit its budget when it was made" if infeasible else None,
    )
    return result_of(draft, 0.0)
