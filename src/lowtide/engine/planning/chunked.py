"""Planning a model: its program as it stands, or with its largest tensors computed in chunks where that pays."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Protocol, runtime_checkable

from lowtide.core.effort import DEFAULT_EFFORT
from lowtide.core.progress import Report
from lowtide.core.techniques import ROUNDING, refuse_ignored
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.graph import Graph
from lowtide.engine.planning.draft import Draft, Keep
from lowtide.engine.planning.frontier import Frontier, budgets_from, frontier_from, least_peak
from lowtide.engine.planning.minimize import find_plan
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.recompute import RecomputeResult, knee_of, least_possible

_NEAR_ITS_FLOOR = 4
"""A peak more than so many times what some op needs in any plan is not its doing, nor that of a few like it."""


class Chunkable(Protocol):
    """A program that may have a second form, which computes the same in chunks."""

    @property
    def graph(self) -> Graph:
        """The program as it stands."""
        ...

    @property
    def in_chunks(self) -> Graph | None:
        """The program with its largest tensors computed in chunks, None where that could not lower any peak."""
        ...

    @property
    def chunks_take_time(self) -> bool:
        """Whether chunks may make the program slower, so that only a budget asks for them."""
        ...


@runtime_checkable
class FinelyChunkable(Chunkable, Protocol):
    """A program that may have a third form, in more chunks, which needs less yet and takes longer."""

    @property
    def in_finer_chunks(self) -> Graph | None:
        """The program in as many chunks as still help, None where `in_chunks` has as many."""
        ...


@runtime_checkable
class FinestChunkable(FinelyChunkable, Protocol):
    """A program whose third form is made for a budget, so that there may be a fourth."""

    @property
    def in_finest_chunks(self) -> Graph | None:
        """The program in as many chunks as still help, whatever budget `in_finer_chunks` is for."""
        ...


@runtime_checkable
class Roundable(Protocol):
    """A program that may be cut further where its results need equal its own to rounding alone."""

    @property
    def to_rounding(self) -> Chunkable:
        """The same program, with other forms in chunks: they may make sums in another order."""
        ...


@runtime_checkable
class LeavesWhole(Protocol):
    """A program that says what it does not compute in chunks."""

    @property
    def left_whole(self) -> Sequence[str]:
        """What large results are computed as a whole though chunks were looked for, and why, a sentence each."""
        ...


def forms_of(model: Chunkable) -> Iterator[Graph]:
    """Yield the graphs of a model: its own, that in chunks, those in more, and last those that equal it to rounding.

    Each is made when it is asked for.
    """
    yield model.graph
    yield from _forms_in_chunks(model)
    if isinstance(model, Roundable):
        yield from _forms_in_chunks(model.to_rounding)


def is_to_rounding(form: Graph, model: Chunkable) -> bool:
    """Tell whether one of the forms of a model equals it to rounding alone."""
    exact = chain((model.graph,), _forms_in_chunks(model))  # a form is made only if it is none of those before
    return isinstance(model, Roundable) and all(form.fingerprint != each.fingerprint for each in exact)


def _forms_in_chunks(model: Chunkable, *, finer: bool = True) -> Iterator[Graph]:
    chunks = model.in_chunks
    if chunks is not None:
        yield chunks
    more = model.in_finer_chunks if finer and isinstance(model, FinelyChunkable) else None
    if more is not None:
        yield more
    most = model.in_finest_chunks if finer and isinstance(model, FinestChunkable) else None
    if most is not None:
        yield most


def _other_forms(model: Chunkable, settings: PlanSettings) -> Iterator[tuple[Chunkable, Graph]]:
    """Yield the forms in chunks that settings ask for, each with the program that it is a form of."""
    models = [model]
    if ROUNDING in settings.techniques and isinstance(model, Roundable):
        models.append(model.to_rounding)
    for each in models:
        yield from ((each, form) for form in _forms_in_chunks(each, finer=settings.budget is not None))


def plan_model(
    model: Chunkable, settings: PlanSettings, progress: Report | None = None, keep: Keep | None = None
) -> tuple[Graph, Result]:
    """Return what `find_plan` finds for a model, and the graph it is for: the model's own, or that in chunks.

    The program in chunks is planned too where an order alone does not do and what an op needs in any plan sets the
    peak; it is taken where it fits and the other does not, or costs less, or at equal cost needs less. Chunks that take
    time are for budgets alone, more of them for budgets that those do not meet, and measured costs for the model's own
    graph. Percentages are of the program as it stands in any case. Where "rounding" is allowed, chunks are tried last
    whose results equal the program's to rounding alone. `keep` is handed the best plan so far, and the graph it is for.

    Raises UsageError where "rounding" is allowed and the program's chunks give its bits in any case.
    """
    if not isinstance(model, Roundable):
        refuse_ignored(
            settings.techniques,
            {ROUNDING},
            f"chunks of {model.graph.name!r} give its bits in any case",
            "it is for programs of PyTorch",
        )
    graph = model.graph
    result = find_plan(graph, settings, progress=progress, keep=keep)
    is_searched = _takes_chunks(settings, result.costs) and (settings.budget is not None or not model.chunks_take_time)
    fits_for_nothing = settings.budget is not None and result.shortfall is None and result.extra_cost == 0
    floor = least_possible(Problem(graph, result.plan.callees), 0)
    is_near = _is_near(result.peak_bytes[floor.space], floor.peak_bytes)
    if not is_searched or fits_for_nothing or result.status == "interrupted" or not is_near:
        return graph, result
    if keep is not None:
        keep(graph, result.plan)
    return _best_of(model, settings, result.base_cost, [(graph, result)], progress)


def plan_in_chunks(
    model: Chunkable, settings: PlanSettings, progress: Report | None = None
) -> tuple[Graph, Result] | None:
    """Return what `plan_model` would find if the program as it stands were no form of it; None without other forms."""
    base_cost = float(settings.prices(model.graph).seconds.sum())
    is_needless = next(_other_forms(model, settings), None) is None
    return None if is_needless else _best_of(model, settings, base_cost, [], progress)


def _best_of(
    model: Chunkable,
    settings: PlanSettings,
    base_cost: float,
    found: list[tuple[Graph, Result]],
    progress: Report | None,
) -> tuple[Graph, Result]:
    """Return the best of the plans found so far and those of the forms in chunks, up to the first within a budget."""
    for source, form in _other_forms(model, settings):
        planned = find_plan(form, _for_alike_parts(settings), model.graph, progress)
        chunk_cost = max(0.0, planned.base_cost - base_cost)
        found.append((form, replace(planned, chunk_cost=chunk_cost, to_rounding=source is not model)))
        if planned.status == "interrupted" or (planned.shortfall is None and settings.budget is not None):
            break
    best, better = min(found, key=lambda each: _rank(each[1]))
    source = model.to_rounding if better.to_rounding and isinstance(model, Roundable) else model
    whole = tuple(source.left_whole) if isinstance(source, LeavesWhole) else ()
    return best, replace(better, seconds=sum(each.seconds for _, each in found), left_whole=whole)


def model_frontier(model: Chunkable, settings: PlanSettings, progress: Report | None = None) -> Frontier:
    """Return the frontier of a model: each budget's plan is for its own graph, or for that in chunks, as `plan_model`
    would choose.

    Seven budgets go from the least peak of an order down to the floor, those of the form whose floor is lower. A form
    whose floor is above all of them is left out.
    """
    forms = [least_peak(model.graph, settings, progress)]
    own = forms[0]
    if _takes_chunks(settings, own.prices.profile):
        forms += [least_peak(form, settings, progress) for form in _forms_in_chunks(model)]
    budgets = budgets_from(min(forms, key=_floor))
    found = [frontier_from(form, settings, budgets, progress) for form in forms if _floor(form) <= budgets[0]]
    base_cost = float(own.prices.seconds.sum())
    beside = (_beside(base_cost, each) for each in found)
    points = [min(rows, key=lambda point: point.rank) for rows in zip(*beside, strict=True)]
    return replace(
        found[0],
        baseline_peak_bytes=own.untouched_peak_bytes[found[0].space],
        base_cost=base_cost,
        points=tuple(points),
        knee=knee_of(points),
    )


def _for_alike_parts(settings: PlanSettings) -> PlanSettings:
    """Return the settings for a form in chunks: without a budget, exact search is short unless all of it is asked for.

    Chunks are alike, so that searches tell sets of them apart in vain: 20 seconds for 0.01 % of a peak at most on steps
    of four language models.
    """
    is_long = settings.budget is None and settings.effort == DEFAULT_EFFORT
    return replace(settings, effort="fast") if is_long else settings


def _beside(base_cost: float, found: Frontier) -> list[RecomputeResult]:
    """Return the points of a form with what the form itself costs beyond the program as it stands."""
    more = max(0.0, found.base_cost - base_cost)
    return [replace(point, extra_cost=point.extra_cost + more) for point in found.points]


def _floor(draft: Draft) -> int:
    return least_possible(draft.problem, 0).peak_bytes


def _takes_chunks(settings: PlanSettings, costs: str) -> bool:
    return settings.chooses_order and costs != "measured"


def _is_near(peak: int, floor: int) -> bool:
    """Tell whether the peak in the first memory space is what some op needs, in any order and whatever runs again."""
    return peak <= floor * _NEAR_ITS_FLOOR


def _rank(result: Result) -> tuple[bool, float, int]:
    """Return what results are compared by, less is better."""
    short = result.shortfall is not None
    is_free = short or all(most is None for most in result.budget.allowed.values())
    return short, 0.0 if is_free else result.extra_cost + result.chunk_cost, sum(result.peak_bytes.values())
