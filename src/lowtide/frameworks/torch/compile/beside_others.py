"""The plan of a graph that runs beside others, which need memory between its two passes."""

from dataclasses import dataclass, replace

from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.analysis.shortfall import Shortfall
from lowtide.engine.plan import Plan
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.compile.read_program import ReadProgram


@dataclass(frozen=True, slots=True)
class Beside:
    """A plan for a program beside others."""

    plan: Plan
    scheduler: str
    shortfall: Shortfall | None
    """Why the budget is missed; None if it is met."""


def plan_beside(program: ReadProgram, settings: PlanSettings, others: int) -> Beside:
    """Return a plan that leaves so much to others between the passes.

    Where none does within the budget, it holds there the least that was found, and the rest is planned for the budget
    all the same: others may come to need less.
    """
    tight = _leaving(program, settings, others)
    if tight.shortfall is None or not isinstance(settings.budget, int):
        return tight
    held = program.held_between(tight.plan)
    goal = max(settings.budget, held)
    if goal - held >= others:
        return tight
    eased = _leaving(program, replace(settings, budget=goal), goal - held)
    is_better = program.held_between(eased.plan) <= held and program.peak_of(eased.plan) < program.peak_of(tight.plan)
    return replace(eased, shortfall=tight.shortfall) if is_better else tight


def _leaving(program: ReadProgram, settings: PlanSettings, others: int) -> Beside:
    found = find_plan(program.leaving_between(others), settings)
    plan = replace(
        found.plan, graph_fingerprint=program.graph.fingerprint, claims=(), lower_bound_bytes={}, status="feasible"
    )
    plan = replace(plan, peak_bytes=simulate(program.graph, plan).peak_bytes)
    return Beside(plan, found.scheduler, found.shortfall)
