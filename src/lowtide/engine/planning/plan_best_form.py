"""The best plan of the unmodified program and its forms in chunks."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lowtide.core.effort import DEFAULT_EFFORT
from lowtide.core.progress import Report
from lowtide.core.techniques import ROUNDING, refuse_ignored
from lowtide.engine.analysis.lower_bounds import LowerBound
from lowtide.engine.planning.draft import Draft, Keep
from lowtide.engine.planning.find_plan import baseline, find_plan
from lowtide.engine.planning.frontier import Frontier, budgets_from, frontier_from, least_peak
from lowtide.engine.planning.program import Form, Program
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.recompute import RecomputeResult, knee_of, least_possible

_NEAR_ITS_FLOOR = 4
"""Chunking is tried only if the peak is at most this many times the largest need of a single op."""


def plan_best_form(
    program: Program, settings: PlanSettings, progress: Report | None = None, keep: Keep | None = None
) -> Result:
    """Return the best verified plan of a program and the form that it is for (`Result.form`).

    Forms in chunks are planned too if orders may change and a single op sets the peak. One wins if only it fits the
    budget, if it costs less, or if it has a lower peak at the same cost. Forms that slow the program down need a
    budget, forms equal only up to rounding need "rounding". Percentages refer to the unmodified program. `keep`
    receives the best plan found so far.

    Raises UsageError if "rounding" is allowed but all forms of the program are bit-equal.
    """
    if not program.has_rounded_forms:
        refuse_ignored(
            settings.techniques,
            {ROUNDING},
            f"chunks of {program.graph.name!r} are always bit-equal",
            "it is for programs of PyTorch",
        )
    draft = baseline(program.graph, settings)
    floor = least_possible(draft.problem, 0)
    may_chunk = allows_chunks(settings, draft.prices.profile) and (
        settings.budget is not None or not program.chunking_slows
    )
    allowed = draft.budget.allowed[floor.space]
    if may_chunk and allowed is not None and floor.peak_bytes > allowed:
        if keep is not None:
            keep(program.graph, draft.plan)
        return _chunks_first(program, settings, draft, floor, progress, keep)
    result = find_plan(program.graph, settings, progress=progress, keep=keep, start=draft)
    fits_for_free = settings.budget is not None and result.shortfall is None and result.extra_cost == 0
    is_near_floor = result.peak_bytes[floor.space] <= floor.peak_bytes * _NEAR_ITS_FLOOR
    if not may_chunk or fits_for_free or result.status == "interrupted" or not is_near_floor:
        return result
    if keep is not None:
        keep(program.graph, result.plan)
    return _best_of(program, settings, result.base_cost, [result], progress)


def _chunks_first(
    program: Program,
    settings: PlanSettings,
    draft: Draft,
    floor: LowerBound,
    progress: Report | None,
    keep: Keep | None,
) -> Result:
    in_chunks = plan_in_chunks(program, settings, progress)
    if in_chunks is not None and (
        in_chunks.shortfall is None
        or in_chunks.status == "interrupted"
        or in_chunks.peak_bytes[floor.space] < floor.peak_bytes
    ):
        return in_chunks
    result = find_plan(program.graph, settings, progress=progress, keep=keep, start=draft)
    if in_chunks is None or result.status == "interrupted":
        return result
    best = min(result, in_chunks, key=_rank)
    return replace(best, seconds=result.seconds + in_chunks.seconds, left_whole=in_chunks.left_whole)


def plan_in_chunks(program: Program, settings: PlanSettings, progress: Report | None = None) -> Result | None:
    """Return the result of `plan_best_form` without the unmodified form; None for a program without other forms."""
    base_cost = float(settings.prices(program.graph).seconds.sum())
    has_forms = next(_chunked_forms(program, settings), None) is not None
    return _best_of(program, settings, base_cost, [], progress) if has_forms else None


def program_frontier(program: Program, settings: PlanSettings, progress: Report | None = None) -> Frontier:
    """Return the frontier of a program; each point is the plan of the form that is better at its budget."""
    forms = [least_peak(program.graph, settings, progress)]
    own = forms[0]
    if allows_chunks(settings, own.prices.profile):
        forms += [least_peak(form.graph, settings, progress) for form in _without_first(program.forms(rounded=False))]
    budgets = budgets_from(min(forms, key=_floor))
    found = [frontier_from(form, settings, budgets, progress) for form in forms if _floor(form) <= budgets[0]]
    base_cost = float(own.prices.seconds.sum())
    with_chunk_cost = (_with_chunk_cost(base_cost, each) for each in found)
    points = _undominated([min(rows, key=lambda point: point.rank) for rows in zip(*with_chunk_cost, strict=True)])
    return replace(
        found[0],
        baseline_peak_bytes=own.unmodified_peak_bytes[found[0].space],
        base_cost=base_cost,
        points=tuple(points),
        knee=knee_of(points),
    )


def _without_first(forms: Iterator[Form]) -> Iterator[Form]:
    next(forms)
    return forms


def _chunked_forms(program: Program, settings: PlanSettings) -> Iterator[Form]:
    rounded = ROUNDING in settings.techniques
    return _without_first(program.forms(finer=settings.budget is not None, rounded=rounded))


def _best_of(
    program: Program, settings: PlanSettings, base_cost: float, found: list[Result], progress: Report | None
) -> Result:
    most = min((_rank(each)[1] for each in found if each.shortfall is None), default=math.inf)
    for form in _chunked_forms(program, settings):
        if settings.budget is not None and settings.prices(form.graph).seconds.sum() - base_cost > most:
            break
        planned = find_plan(form.graph, _for_equal_chunks(settings), program.graph, progress)
        chunk_cost = max(0.0, planned.base_cost - base_cost)
        found.append(replace(planned, chunk_cost=chunk_cost, to_rounding=not form.is_exact, form=form.name))
        if planned.status == "interrupted" or (planned.shortfall is None and settings.budget is not None):
            break
    best = min(found, key=_rank)
    left_whole = program.left_whole(exact=not best.to_rounding)
    return replace(best, seconds=sum(each.seconds for each in found), left_whole=left_whole)


def _for_equal_chunks(settings: PlanSettings) -> PlanSettings:
    """Return settings whose exact search stays short without a budget, unless effort is "max".

    Chunks are interchangeable: exact search took 20 seconds for at most 0.01 % of the peak of four language models.
    """
    is_long = settings.budget is None and settings.effort == DEFAULT_EFFORT
    return replace(settings, effort="fast") if is_long else settings


def _with_chunk_cost(base_cost: float, found: Frontier) -> list[RecomputeResult]:
    chunk_cost = max(0.0, found.base_cost - base_cost)
    return [replace(point, extra_cost=point.extra_cost + chunk_cost) for point in found.points]


def _undominated(points: Sequence[RecomputeResult]) -> list[RecomputeResult]:
    kept: list[RecomputeResult] = []
    for point in sorted(points, key=lambda point: (point.extra_cost, point.peak_bytes)):
        if not kept or point.peak_bytes < kept[-1].peak_bytes:
            kept.append(point)
    return kept


def _floor(draft: Draft) -> int:
    return least_possible(draft.problem, 0).peak_bytes


def allows_chunks(settings: PlanSettings, costs: str) -> bool:
    """Return whether forms in chunks are allowed; measured costs do not cover their ops."""
    return settings.chooses_order and costs != "measured"


def _rank(result: Result) -> tuple[bool, float, int]:
    misses = result.shortfall is not None
    is_free = misses or all(most is None for most in result.budget.allowed.values())
    return misses, 0.0 if is_free else result.extra_cost + result.chunk_cost, sum(result.peak_bytes.values())
