"""Where state lives: on the device or, if that saves time or fits a budget, as little of it as needed on the host."""

from dataclasses import replace

from lowtide.core.progress import Report
from lowtide.engine.analysis.budget import Shortfall
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.offload import HOST
from lowtide.engine.plan import Plan
from lowtide.engine.planning.budget import is_part, parse_budget
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
    may_move = "offload" in settings.techniques and settings.budget is not None and not settings.transient
    if not may_move or is_part(settings.budget) or program.with_state_on_host(ALL) is None:
        return plan_best_form(program, settings, progress, keep)
    found: list[Result] = []
    if not _is_too_large(program, settings, least):
        found.append(_plan(program, settings, least, progress, keep))
        if found[0].shortfall is None and not found[0].extra_time:
            return found[0]
    low, share, high = least, ALL, ALL + 1
    with_all: Result | None = None
    while low < share < high and not (found and found[-1].status == "interrupted"):
        result = None
        if share == ALL or not _is_too_large(program, settings, share):
            result = _plan(program, settings, share, progress, keep)
            found.append(result)
            with_all = with_all or result
        if result is not None and (result.shortfall is None or result.shortfall.space == HOST):
            high = share
        else:
            low = share
        share = (low + high) // 2
    best = min(found, key=_rank)
    return best if with_all is None else _without_claims_about_others(best, with_all)


def _moved(program: Program, share: int) -> Program:
    """Return the program with a share of its state on the host."""
    return (program.with_state_on_host(share) or program) if share else program


def _is_too_large(program: Program, settings: PlanSettings, share: int) -> bool:
    """Return whether persistent buffers alone exceed the budget."""
    graph = _moved(program, share).graph
    peaks = dict.fromkeys(graph.persistent_bytes(), 0)
    return (parse_budget(settings.budget, graph, peaks).allowed[graph.spaces[0].name] or 0) < 0


def _plan(
    program: Program, settings: PlanSettings, share: int, progress: Report | None, keep: Keep | None = None
) -> Result:
    """Return the best plan with a share of the state on the host."""
    result = plan_best_form(_moved(program, share), settings, progress, keep)
    if not share:
        return result
    return replace(result, baseline_peak_bytes=simulate(program.graph, Plan.baseline(program.graph)).peak_bytes)


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
