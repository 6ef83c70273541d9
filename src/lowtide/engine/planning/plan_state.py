"""Where state lives: on the device or, if that saves time or fits a budget, as little of it as needed on the host."""

from dataclasses import replace

from lowtide.core.progress import Report
from lowtide.engine.analysis.budget import Shortfall
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.offload import HOST
from lowtide.engine.plan import Plan
from lowtide.engine.planning.budget import is_part
from lowtide.engine.planning.draft import Keep
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.program import ALL, Program
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings

def plan_with_state(
    program: Program,
    settings: PlanSettings,
    progress: Report | None = None,
    keep: Keep | None = None,
    *,
    least: int = 0,
) -> Result:
    """Return the best plan of a program, with part of its state on the host if offload is allowed.

    A budget in bytes covers everything that the device holds, so state on the host leaves more of it to the rest. State
    moves only if the budget is missed otherwise, or met at a higher cost. The share is halved in eighths, down to
    `least`; the plan with the least extra time wins, then the one with the least state on the host. Percentages refer
    to the program with all state on the device.
    """
    first = _plan(program, settings, least, progress, keep)
    may_move = "offload" in settings.techniques and not is_part(settings.budget) and not settings.transient
    if not may_move or settings.budget is None or (first.shortfall is None and not first.extra_time):
        return first
    found = [first]
    low, share, high = least, ALL, ALL + 1
    while low < share < high and found[-1].status != "interrupted":
        if program.with_state_on_host(share) is None:
            return first
        result = _plan(program, settings, share, progress)
        found.append(result)
        if result.shortfall is None or result.shortfall.space == HOST:
            high = share
        else:
            low = share
        share = (low + high) // 2
    best = min(found, key=_rank)
    return best if len(found) == 1 else _without_claims_about_others(best, found[1])


def _plan(
    program: Program, settings: PlanSettings, share: int, progress: Report | None, keep: Keep | None = None
) -> Result:
    """Return the best plan with a share of the state on the host, or with none if the program has no such form."""
    moved = program.with_state_on_host(share) if share else None
    if moved is None:
        return plan_best_form(program, settings, progress, keep)
    before = simulate(program.graph, Plan.baseline(program.graph)).peak_bytes
    return replace(plan_best_form(moved, settings, progress, keep), baseline_peak_bytes=before)


def _rank(result: Result) -> tuple[int, float, int]:
    """Return the key by which plans are compared; less is better."""
    missed = 0 if result.shortfall is None else max(1, result.shortfall.missed_bytes)
    return missed, 0.0 if missed else result.extra_time, result.persistent_bytes.get(HOST, 0)


def _without_claims_about_others(best: Result, with_all: Result) -> Result:
    """Return a result that claims nothing about plans with other state on the host.

    Whatever a plan keeps on the device, the same plan with all state on the host never holds more there. So a budget is
    impossible if it is impossible then, and not otherwise. A cost is optimal only if it is zero.
    """
    if best.shortfall is None:
        is_free = best.status != "optimal" or not best.extra_time
        return best if is_free else replace(best, status="feasible", plan=replace(best.plan, status="feasible"))
    if _is_impossible(with_all.shortfall) or not best.shortfall.is_impossible:
        return best
    missed = replace(best.shortfall, is_impossible=False)
    return replace(best, shortfall=missed, status="feasible", plan=replace(best.plan, status="feasible"))


def _is_impossible(shortfall: Shortfall | None) -> bool:
    return shortfall is not None and shortfall.is_impossible and shortfall.space != HOST
