"""Planning a model: its program as it stands, or with its largest tensors computed in pieces where that pays."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from lowtide.analysis.problem import Problem
from lowtide.costs import Prices, given_prices
from lowtide.effort import DEFAULT_EFFORT, EffortName
from lowtide.frameworks.model import Model
from lowtide.graph import Graph
from lowtide.pipeline import DEFAULT_MEANS, Result, minimize
from lowtide.recompute import least_possible

_NEAR_ITS_FLOOR = 2
"""A peak more than so many times what some op needs in any plan is not that op's doing: an update holds few tensors."""


def plan_model(
    model: Model,
    *,
    budget: str | int | None = None,
    allow: Iterable[str] = DEFAULT_MEANS,
    in_place: bool = True,
    scheduler: str | None = None,
    costs: Callable[[Graph], Prices] = given_prices,
    effort: EffortName = DEFAULT_EFFORT,
    progress: Callable[[str], None] | None = None,
) -> tuple[Graph, Result]:
    """Return what `minimize` finds for a model, and the graph it is for: the model's own, or that in pieces.

    The settings are those of `minimize`; `costs` prices a graph, and prices from a file are for the model's own alone.
    The program in pieces is planned too where an order alone does not do and what an op needs in any plan sets the
    peak; it is taken where it fits and the other does not, or costs less, or at equal cost needs less. Percentages are
    of the program as it stands in any case.
    """
    means = tuple(allow)

    def plan(graph: Graph, untouched: Graph | None = None) -> Result:
        return minimize(
            graph,
            budget=budget,
            allow=means,
            in_place=in_place,
            scheduler=scheduler,
            costs=costs(graph),
            effort=effort,
            untouched=untouched,
            progress=progress,
        )

    graph = model.graph
    result = plan(graph)
    is_searched = scheduler is None and "reorder" in means and result.costs != "measured"
    fits_for_nothing = budget is not None and result.shortfall is None and result.extra_cost == 0
    if not is_searched or fits_for_nothing or result.status == "interrupted" or not _is_near_its_floor(graph, result):
        return graph, result
    pieces = model.in_pieces
    if pieces is None:
        return graph, result
    other = plan(pieces, untouched=graph)
    graph, better = (pieces, other) if _rank(other) < _rank(result) else (graph, result)
    return graph, replace(better, seconds=result.seconds + other.seconds)


def _is_near_its_floor(graph: Graph, result: Result) -> bool:
    """Tell whether the peak in the first memory space is what some op needs, in any order and whatever runs again."""
    floor = least_possible(Problem(graph, result.plan.callees), 0)
    return result.peak_bytes[floor.space] <= floor.peak_bytes * _NEAR_ITS_FLOOR


def _rank(result: Result) -> tuple[bool, float, int]:
    """Return what results are compared by, less is better."""
    short = result.shortfall is not None
    return short, 0.0 if short else result.extra_cost, sum(result.peak_bytes.values())
