"""Plans from files."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from lowtide.core.errors import FingerprintError, VerificationError
from lowtide.engine.analysis.budget import Shortfall
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, read_plan_file
from lowtide.engine.planning.find_plan import baseline, with_stalls
from lowtide.engine.planning.program import Form, Program
from lowtide.engine.planning.result import Result, result_of
from lowtide.engine.planning.settings import PlanSettings

_FROM_FILE = "plan file"


def read_plan(path: Path, program: Program, *, over_budget: bool = False) -> tuple[Form, Plan]:
    """Read and verify a plan file; return the plan and its form of the program.

    Raises FingerprintError for another program, VerificationError for claims about another form or, unless
    `over_budget`, an infeasible plan; and as `read_plan_file`.
    """
    form, plan = _read_plan(path, program)
    in_chunks = form.name != "unmodified"
    if any(claim.in_chunks != in_chunks for claim in plan.claims):
        forms = ("in chunks", "unmodified") if in_chunks else ("unmodified", "in chunks")
        raise VerificationError(
            f"{path}: the plan is for the program {forms[0]}, but a claim is about the program {forms[1]}; correct the "
            "claim, or plan again"
        )
    if plan.status == "infeasible" and not over_budget:
        raise VerificationError(
            f"{path}: the plan is marked infeasible: it does not fit the budget or capacity that it was made for; plan "
            "with more memory, or accept it as it is (--allow-over-budget, over_budget=True)"
        )
    return form, plan


def _read_plan(path: Path, program: Program) -> tuple[Form, Plan]:
    form = None
    for form in program.forms_with_state():
        with suppress(FingerprintError):
            return form, read_plan_file(path, form.graph)
    return program.form("unmodified") or program.make_unmodified(), read_plan_file(path, program.graph)


def result_of_file(path: Path, program: Program, settings: PlanSettings, *, over_budget: bool = False) -> Result:
    """Read a program's plan, verify it, and price it as if these settings had just made it.

    Raises as `read_plan`.
    """
    form, plan = read_plan(path, program, over_budget=over_budget)
    shortfall = None
    if plan.status == "infeasible":
        space = form.graph.spaces[0].name
        shortfall = Shortfall(
            space=space,
            allowed_bytes=0,
            reached_bytes=plan.peak_bytes[space],
            cause="plan file",
            is_impossible=True,
            source=str(path),
        )
    unmodified = None if form.graph is program.graph else program.graph
    result = result_with(form.graph, plan, settings, _FROM_FILE, shortfall, unmodified)
    moved = 0.0
    if form.name == "unmodified" and form.graph.updates_on_host.any():
        moved = float(settings.prices(program.graph).seconds.sum()) - result.base_cost
    return replace(result, to_rounding=not form.is_exact, form=form.name, moved_cost=moved)


def result_with(
    graph: Graph,
    plan: Plan,
    settings: PlanSettings,
    scheduler: str,
    shortfall: Shortfall | None,
    unmodified: Graph | None = None,
    seconds: float = 0.0,
) -> Result:
    """Return a verified plan's result as if these settings had just made it."""
    draft = baseline(graph, settings, unmodified).taking(plan)
    prices = draft.prices.seconds
    draft = replace(
        draft,
        scheduler=scheduler,
        extra_cost=float(prices[plan.order()].sum() - prices.sum()),
        extra_cost_bound=None,
        solver_bound=None,
        shortfall=shortfall,
    )
    return result_of(with_stalls(draft), seconds)
