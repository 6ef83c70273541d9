"""The frontier and single budgets agree, more techniques are never worse, and rows that miss their budget say so."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide import frontier, minimize
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.frontier import frontier_from, least_peak
from lowtide.engine.planning.plan_best_form import program_frontier
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.recompute.checkpointing import segment_plan
from lowtide.reporting.frontier import frontier_to_json, frontier_to_text
from tests.engine.planning.graphs import two_ops
from tests.engine.planning.programs import GivenProgram
from tests.examples import examples
from tests.oracles.residual_chain import residual_chain
from tests.strategies import graphs

ALL = ("reorder", "share", "recompute")


@examples(25)
@given(graphs(10))
def test_every_row_says_what_planning_for_its_budget_says(graph: Graph) -> None:
    """Met by one exactly where met by the other, and never dearer."""
    for point in frontier(graph, effort="fast").points:
        alone = minimize(graph, budget=f"{point.budget_bytes} B", transient=True, allow=ALL, effort="fast")
        assert point.fits == (alone.shortfall is None)
        if point.fits:
            assert point.extra_cost <= alone.extra_cost + 1e-9
            assert point.extra_cost_bound <= point.extra_cost + 1e-9


@examples(25)
@given(graphs(10), graphs(10))
def test_peaks_of_a_frontier_fall_and_extra_costs_rise(graph: Graph, chunked: Graph) -> None:
    """No point is dominated by another one, nor by a point of the unmodified form."""
    points = program_frontier(GivenProgram(graph, chunked), PlanSettings(effort="fast")).points
    assert all(first.peak_bytes > second.peak_bytes for first, second in pairwise(points))
    assert all(first.extra_cost < second.extra_cost for first, second in pairwise(points))


def test_a_chain_beyond_exact_search_is_met_by_rows_and_single_budgets_alike() -> None:
    graph = residual_chain(40)
    for point in frontier(graph, effort="fast").points:
        alone = minimize(graph, budget=f"{point.budget_bytes} B", transient=True, allow=ALL, effort="fast")
        assert (point.fits, point.fits and point.extra_cost) == (
            alone.shortfall is None,
            alone.shortfall is None and alone.extra_cost,
        )


@examples(40)
@given(graphs(10), st.integers(20, 100))
def test_more_allowed_techniques_are_never_worse(graph: Graph, percent: int) -> None:
    """A budget met without a technique is met with it, for no more time."""
    for fewer, more in pairwise([(), ("recompute",), ("share", "recompute"), ALL]):
        least, most = (minimize(graph, budget=f"{percent}%", allow=allow, effort="fast") for allow in (fewer, more))
        if least.shortfall is None:
            assert most.shortfall is None
            assert most.extra_cost <= least.extra_cost + 1e-9


def test_a_row_that_misses_its_budget_says_so_and_shows_no_bound() -> None:
    settings = PlanSettings(effort="fast")
    found = frontier_from(least_peak(residual_chain(40), settings), settings, [400, 200, 20])
    missed = [number for number, point in enumerate(found.points) if not point.fits]
    assert missed
    rows = frontier_to_text("chain", found).splitlines()[-len(found.points) :]
    for number, (row, fields) in enumerate(zip(rows, frontier_to_json(found)["points"], strict=True)):
        assert ("misses by " in row) == (number in missed) == (fields["extra_cost_bound"] is None)
        assert (fields["shortfall"] is not None) == (number in missed)


def test_rows_of_a_model_take_its_form_in_chunks_where_that_is_better() -> None:
    """As planning the model for one budget does."""

    program = GivenProgram(residual_chain(12, costs=[9.0] * 12), residual_chain(12))
    alone = frontier(program.graph, effort="fast")
    found = program_frontier(program, PlanSettings(effort="fast"))
    assert found.points[-1].extra_cost < alone.points[-1].extra_cost
    for other in alone.points:
        assert any(point.rank_within(other.budget_bytes) <= other.rank for point in found.points)


def test_a_curve_begins_where_an_order_of_the_form_in_chunks_ends() -> None:
    """What an order alone reaches, in chunks, is no point of a curve any more."""

    program = GivenProgram(two_ops(large=4096), chunked := residual_chain(40))
    found = program_frontier(program, PlanSettings(effort="fast"))
    assert found.points[0].budget_bytes == minimize(chunked, effort="fast").peak_bytes["device"]
    assert found.points[-1].budget_bytes < found.points[0].budget_bytes
    assert found.baseline_peak_bytes == simulate(program.graph, Plan.baseline(program.graph)).peak_bytes["device"]


@pytest.mark.parametrize("depth", [60, 120])
@pytest.mark.parametrize("n_segments", [None, 2, 4, 30])
def test_what_segments_by_hand_fit_is_met(depth: int, n_segments: int | None) -> None:
    """Chen's rule with any number of segments, for about as much time or less."""
    graph = residual_chain(depth)
    by_hand = segment_plan(graph, n_segments=n_segments)
    budget = int(simulate(graph, by_hand).peak_bytes["device"])
    found = minimize(graph, budget=f"{budget} B", transient=True, allow=ALL, effort="fast")
    assert found.shortfall is None
    assert found.extra_cost <= 1.02 * (len(by_hand.order()) - graph.n_ops)
