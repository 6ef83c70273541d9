"""The exact search over all sequences of runs, against Dijkstra over all states of small random graphs."""

from functools import cache

import pytest

from lowtide import minimize
from lowtide.engine.analysis import Problem
from lowtide.engine.graph import GraphBuilder, Lifetime
from lowtide.engine.recompute import ComposeSettings, OrderedProgram, compose, least_possible
from lowtide.engine.recompute.exact_search import search_exactly
from lowtide.engine.recompute.unrolled import first_runs
from lowtide.reporting.shortfall import describe_missed
from tests.examples import share_of
from tests.oracles.least_extra_cost import least_extra_cost
from tests.oracles.plans import problem_of
from tests.oracles.residual_chain import residual_chain
from tests.oracles.skipping_graphs import skipping_graph
from tests.strategies import random_graph

INFINITE = float("inf")
WORK = 1_000_000


@cache
def _budgets(in_place: bool) -> list[tuple[Problem, int, int]]:
    """Return small problems without callees, budgets below the peak of the given order, and that peak."""
    found: list[tuple[Problem, int, int]] = []
    graphs = [skipping_graph(seed) for seed in range(60)] + [random_graph(seed, 3 + seed % 4) for seed in range(120)]
    for graph in share_of(graphs, 3):
        if not graph.subgraphs:
            problem = problem_of(graph, in_place=in_place)
            peak = int(problem.evaluate(problem.given_order()).peaks[0])
            budgets = range(peak - 1, least_possible(problem, 0).peak_bytes - 1, -1)
            found.extend((problem, budget, peak) for budget in budgets)
    return found


@cache
def _least_extra_cost(problem: Problem, budget: int, any_order: bool) -> float:
    """Ask the oracle once."""
    return least_extra_cost(problem, budget, any_order=any_order)


@pytest.mark.parametrize("any_order", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_exact_results_cost_as_much_as_the_cheapest_of_all_plans(in_place: bool, any_order: bool) -> None:
    """Brute force meets the same budgets at the same cost, and replaying the runs confirms the result."""
    met = 0
    for problem, budget, peak in _budgets(in_place):
        order = None if any_order else problem.given_order()
        found = search_exactly(problem, problem.graph.cost, budget, peak, order=order, max_work=WORK)
        least = _least_extra_cost(problem, budget, any_order)
        assert found.cost_bound == least
        if least < INFINITE:
            assert found.is_exact
            assert found.runs is not None
            played = OrderedProgram(problem, first_runs(found.runs.tolist()), problem.graph.cost).replay(found.runs)
            assert (played.extra_cost, played.peak_bytes <= budget) == (least, True)
            met += 1
    assert met > 15


def test_the_lowest_peak_is_found_if_no_plan_fits() -> None:
    """The peak found is met by some plan, and one byte less is not."""
    refuted = 0
    for problem, budget, peak in _budgets(True):
        found = search_exactly(problem, problem.graph.cost, budget, peak, max_work=WORK)
        if found.cost_bound == INFINITE:
            refuted += 1
            assert found.peak_bound > budget
            assert _least_extra_cost(problem, found.peak_bound - 1, True) == INFINITE
            assert _least_extra_cost(problem, found.peak_bound, True) < INFINITE
    assert refuted > 15


@pytest.mark.parametrize("any_order", [False, True])
def test_a_search_that_stops_still_bounds_the_cost(any_order: bool) -> None:
    """With little work, no bound exceeds the lowest cost, and no runs cost less."""
    stopped = 0
    for problem, budget, peak in _budgets(True):
        order = None if any_order else problem.given_order()
        least = _least_extra_cost(problem, budget, any_order)
        for work in (3, 30):
            found = search_exactly(problem, problem.graph.cost, budget, peak, order=order, max_work=work)
            assert found.cost_bound <= least
            stopped += not found.is_exact
    assert stopped > 50


def test_every_feasible_budget_is_met_at_the_lowest_cost_of_all_orders() -> None:
    """Composed plans of tiny graphs miss no budget, and their bounds hold for any order."""
    for problem, budget, _ in _budgets(True):
        result = compose(problem, [("given", problem.given_order())], budget, ComposeSettings(effort="fast")).result
        least = _least_extra_cost(problem, budget, True)
        assert result.fits == (least < INFINITE)
        assert result.holds_for_any_order
        assert result.extra_cost_bound == least
        assert not result.fits or result.extra_cost == least


def test_graphs_beyond_the_native_limits_give_no_result() -> None:
    problem = problem_of(residual_chain(40))
    found = search_exactly(problem, problem.graph.cost, 100, 400, max_work=WORK)
    assert (found.runs, found.cost_bound, found.peak_bound, found.is_exact) == (None, 0.0, 0, False)


def test_recomputed_buffers_are_overwritten_in_place() -> None:
    """A recomputed run may overwrite a recomputed operand if the budget has no room for both."""
    builder = GraphBuilder("chain read from its end")
    names = [builder.add_buffer("x", 4, Lifetime.INPUT)]
    for k in range(3):
        names.append(builder.add_buffer(f"a{k}", 4))
        builder.add_op(f"f{k}", "f", reads=[names[-2]], writes=[names[-1]], in_place=[(names[-2], names[-1])], cost=1.0)
    for k in (2, 1):
        out = builder.add_buffer(f"y{k}", 1, Lifetime.OUTPUT)
        builder.add_op(f"g{k}", "g", reads=[names[k]], writes=[out])
    end = builder.add_buffer("z", 1, Lifetime.OUTPUT)
    builder.add_op("h", "h", reads=[names[3], names[1]], writes=[end])
    problem = problem_of(builder.build())
    for budget in range(10, 20):
        given = problem.given_order()
        found = search_exactly(problem, problem.graph.cost, budget, 100, order=given, max_work=WORK)
        assert found.cost_bound == least_extra_cost(problem, budget)


def test_exact_results_are_claimed_over_all_orders() -> None:
    """An optimal plan claims its cost over all orders. For an infeasible budget, the lowest peak is a claim."""
    allowed = ["reorder", "share", "recompute"]
    result = minimize(residual_chain(6), budget="60%", allow=allowed)
    assert result.status == "optimal"
    cost = [claim for claim in result.claims if claim.figure == "extra cost"]
    assert [(claim.over, claim.shown_by, claim.at_least) for claim in cost] == [("reruns", "search", result.extra_cost)]

    graph = skipping_graph(13)
    needed = least_possible(problem_of(graph), 0).peak_bytes
    refuted = minimize(graph, budget=f"{needed} B", transient=True, allow=allowed)
    least = refuted.peak_bytes["device"]
    assert refuted.status == "infeasible"
    assert least_extra_cost(problem_of(graph), least - 1, any_order=True) == INFINITE
    peaks = [claim for claim in refuted.claims if claim.figure == "peak"]
    assert [(claim.over, claim.shown_by, claim.at_least) for claim in peaks] == [("reruns", "search", least)]
    assert refuted.shortfall is not None
    assert describe_missed(refuted).startswith(
        f"every plan needs at least {least:,} B in device, {least - needed:,} B more than the {needed:,} B that the "
        f"budget leaves ({peaks[0].sentence}); the lowest peak reached is {least:,} B, "
    )
