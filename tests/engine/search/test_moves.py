"""Other orders of the same peak are distinct, valid and reproducible."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.effort import SEARCH_EFFORTS
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import is_valid_order
from lowtide.engine.search import equal_orders, solve
from tests.examples import examples
from tests.oracles.plans import problem_of
from tests.strategies import graphs, random_graph


@examples(200)
@given(graphs(9), st.booleans(), st.integers(1, 8))
def test_equal_orders_are_distinct_valid_and_within_the_peak(graph: Graph, in_place: bool, count: int) -> None:
    problem = problem_of(graph, in_place=in_place)
    solution = solve(problem, [problem.given_order()], SEARCH_EFFORTS["fast"])
    orders = list(equal_orders(problem, solution, count))
    assert orders[0].tolist() == solution.order.tolist()
    assert len({order.tobytes() for order in orders}) == len(orders) <= count
    for order in orders:
        assert sorted(order.tolist()) == list(range(graph.n_ops))
        assert is_valid_order(problem.graph, order)
        peaks = problem.evaluate(order).peaks.tolist()
        assert all(peak <= most for peak, most in zip(peaks, solution.peaks, strict=True))
        if solution.optimal:
            assert tuple(peaks) == solution.peaks


@pytest.mark.parametrize("seed", range(5))
def test_a_large_program_has_the_requested_number_of_equal_orders_deterministically(seed: int) -> None:
    problem = problem_of(random_graph(seed, 150))
    solution = solve(problem, [problem.given_order()], SEARCH_EFFORTS["fast"])
    once, again = ([order.tolist() for order in equal_orders(problem, solution, 6)] for _ in range(2))
    assert once == again
    assert len(once) == 6


def test_no_requested_orders_gives_none() -> None:
    problem = problem_of(random_graph(1, 150))
    solution = solve(problem, [problem.given_order()], SEARCH_EFFORTS["fast"])
    assert list(equal_orders(problem, solution, 0)) == []
