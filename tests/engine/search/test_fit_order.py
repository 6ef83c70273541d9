"""Compare fit mode with all orders of small graphs: feasibility and the number of moves."""

from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lowtide import read_graph_file
from lowtide.core.effort import SEARCH_EFFORTS
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.budget import Budget
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import is_valid_order
from lowtide.engine.search import Fit, FittedOrder, fit_order, moved_ops, solve
from lowtide.engine.search.moves import bring_nearer
from tests.examples import examples
from tests.oracles.naive_player import order_peaks, valid_orders
from tests.oracles.plans import problem_of
from tests.strategies import graphs, random_graph

MOST_ORDERS = 400
SAMPLES = sorted((Path(__file__).parents[2] / "data/graphs").glob("*.graph.json.gz"))


def moves(order: list[int], given_order: list[int]) -> int:
    """Return the ops outside a longest common subsequence, by the textbook recurrence."""

    @cache
    def common(i: int, j: int) -> int:
        if not i or not j:
            return 0
        if order[i - 1] == given_order[j - 1]:
            return common(i - 1, j - 1) + 1
        return max(common(i - 1, j), common(i, j - 1))

    return len(order) - common(len(order), len(given_order))


@examples(300)
@given(graphs(7), st.booleans(), st.integers(0, 100), st.integers(0, 100))
def test_it_fits_exactly_when_some_order_fits_and_moves_the_fewest_ops(
    graph: Graph, in_place: bool, percent: int, which: int
) -> None:
    orders = list(islice(valid_orders(graph), MOST_ORDERS + 1))
    assume(len(orders) <= MOST_ORDERS)
    problem = problem_of(graph, in_place=in_place)
    start = orders[which % len(orders)]
    peaks = [order_peaks(graph, order, in_place=in_place) for order in orders]
    budget = [max(each) * percent // 100 for each in zip(*peaks, strict=True)]
    fitting = [
        moves(order, start)
        for order, peak in zip(orders, peaks, strict=True)
        if all(figure <= most for figure, most in zip(peak, budget, strict=True))
    ]
    found = fit_order(problem, Budget.of_limits(graph, budget), np.asarray(start, np.int32), SEARCH_EFFORTS["fast"])
    assert found.fit == (Fit.FOUND if fitting else Fit.IMPOSSIBLE)
    if found.order is not None:
        assert found.order.tolist() in orders
        assert (problem.evaluate(found.order).peaks <= budget).all()
        assert found.least_moved == found.moved == moves(found.order.tolist(), start) == min(fitting)
    elif found.reason is not None:
        space = [space.name for space in graph.spaces].index(found.reason.space)
        assert budget[space] < found.reason.peak_bytes <= min(peak[space] for peak in peaks)
    else:
        assert found.refuted is not None


@given(st.permutations(range(8)), st.permutations(range(8)))
def test_moved_ops_are_outside_a_longest_common_subsequence(one: list[int], two: list[int]) -> None:
    moved = moved_ops(np.asarray(one, np.int32), np.asarray(two, np.int32))
    assert len(moved) == moves(one, two)
    assert [op for op in one if op not in moved] == [op for op in two if op not in moved]
    assert moved == [op for op in two if op in moved]


def fitted(problem: Problem) -> list[tuple[int, FittedOrder]]:
    """Return results for budgets from the best known peak to just below that of program order."""
    given_order = problem.given_order()
    solution = solve(problem, [given_order], SEARCH_EFFORTS["fast"])
    best, most = solution.peaks[0], int(problem.evaluate(given_order).peaks[0])
    budgets = [best + (most - 1 - best) * part // 4 for part in range(5)] if best < most else []
    graph, known = problem.graph, [solution.order]
    return [
        (most, fit_order(problem, Budget.of_limits(graph, [most]), given_order, SEARCH_EFFORTS["fast"], known=known))
        for most in budgets
    ]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_real_programs_fit_every_feasible_budget(path: Path) -> None:
    problem = problem_of(read_graph_file(path))
    for budget, found in fitted(problem):
        assert found.order is not None
        assert is_valid_order(problem.graph, found.order)
        assert problem.evaluate(found.order).peaks[0] <= budget
        assert 0 < found.least_moved <= found.moved == len(moved_ops(found.order, problem.given_order()))


@pytest.mark.share_of_cases
@pytest.mark.parametrize("seed", [1, 3, 4, 5])
def test_large_programs_keep_the_budget_and_mostly_their_order(seed: int) -> None:
    graph = random_graph(seed, 400)
    problem = problem_of(graph)
    if len(graph.spaces) > 1:
        return
    for budget, found in fitted(problem):
        assert found.order is not None
        assert is_valid_order(problem.graph, found.order)
        assert problem.evaluate(found.order).peaks[0] <= budget
        assert found.moved <= graph.n_ops // 2


@examples(100)
@given(graphs(9), st.integers(0, 50))
def test_bringing_an_order_nearer_stays_accepted_and_never_goes_farther(graph: Graph, which: int) -> None:
    orders = list(islice(valid_orders(graph), which + 1))
    problem = problem_of(graph)
    start, target = np.asarray(orders[-1], np.int32), problem.given_order()
    peaks = problem.evaluate(start).peaks

    def keep(order: np.ndarray[tuple[int], np.dtype[np.int32]]) -> bool:
        return bool((problem.evaluate(order).peaks <= peaks).all())

    nearer = bring_nearer(problem, start, target, keep, 200)
    assert is_valid_order(problem.graph, nearer)
    assert sorted(nearer.tolist()) == list(range(graph.n_ops))
    assert keep(nearer)
    assert len(moved_ops(nearer, target)) <= len(moved_ops(start, target))
    assert bring_nearer(problem, start, target, lambda _: True, 200).tolist() == target.tolist()
