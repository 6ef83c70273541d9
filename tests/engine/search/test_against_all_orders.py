"""Compare the search and its proofs with all orders of small random graphs."""

from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.effort import SEARCH_EFFORTS
from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Graph
from lowtide.engine.search import Fit, find_fit, solve
from tests.examples import examples
from tests.oracles.least_peak import least_peak
from tests.oracles.plans import problem_of
from tests.strategies import graphs


def outcome_of(problem: Problem) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the peaks and bounds that the search finds from program order."""
    solution = solve(problem, [problem.given_order()], SEARCH_EFFORTS["balanced"])
    assert solution.peaks == tuple(problem.evaluate(solution.order).peaks.tolist())
    return solution.peaks, tuple(bound.peak_bytes for bound in solution.bounds)


@examples(300)
@given(graphs(9, callees=False), st.booleans())
def test_the_search_finds_the_least_peak_and_proves_it(graph: Graph, in_place: bool) -> None:
    problem = problem_of(graph, in_place=in_place)
    peaks, bounds = outcome_of(problem)
    least = tuple(least_peak(problem, space) for space in range(len(graph.spaces)))
    assert all(bound <= best for bound, best in zip(bounds, least, strict=True))
    if len(graph.spaces) == 1:
        assert peaks == bounds == least


@examples(300)
@given(graphs(9, callees=False), st.booleans(), st.integers(0, 20))
def test_a_budget_is_met_exactly_when_some_order_meets_it(graph: Graph, in_place: bool, slack: int) -> None:
    problem = problem_of(graph, in_place=in_place)
    if len(graph.spaces) > 1:
        return
    least = least_peak(problem)
    found = find_fit(problem, [least + slack], problem.given_order(), 10**9)
    assert found.fit == Fit.FOUND
    assert found.order is not None
    assert problem.evaluate(found.order).peaks[0] <= least + slack
    if least > slack:
        refused = find_fit(problem, [least - slack - 1], problem.given_order(), 10**9)
        assert refused.fit == Fit.IMPOSSIBLE
        assert least - slack - 1 < refused.next_budget[0] <= least
