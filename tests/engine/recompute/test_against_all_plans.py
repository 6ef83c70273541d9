"""The budgeted planner against all plans, on small random graphs with every feature."""

from functools import cache

import pytest

from lowtide.engine.analysis import Problem
from lowtide.engine.recompute import plan_within_budget
from tests.examples import share_of
from tests.oracles.least_extra_cost import least_extra_cost
from tests.oracles.plans import problem_of
from tests.oracles.skipping_graphs import skipping_graph
from tests.strategies import random_graph

INFINITE = float("inf")


@cache
def _problems(in_place: bool) -> list[Problem]:
    graphs = [skipping_graph(seed) for seed in range(100)] + [random_graph(seed, 3 + seed % 3) for seed in range(20)]
    return [problem_of(graph, in_place=in_place) for graph in share_of(graphs, 4)]


@cache
def _least_extra_cost(problem: Problem, budget: int) -> float:
    """Ask the oracle once."""
    return least_extra_cost(problem, budget)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_the_lowest_cost_of_all_plans_is_between_bound_and_cost(in_place: bool, exact: bool) -> None:
    """bound <= least <= cost at every budget below the peak, and infeasible budgets have no plan."""
    if exact:
        pytest.importorskip("highspy")
    found, best = 0, 0
    for problem in _problems(in_place):
        order = problem.given_order()
        for budget in range(int(problem.evaluate(order).peaks[0]) - 1, -1, -1):
            result = plan_within_budget(problem, order, budget, exact=exact)
            if result.floor.peak_bytes > budget:
                assert result.status == "infeasible"
                assert _least_extra_cost(problem, budget) == INFINITE
                break
            least = _least_extra_cost(problem, budget)
            assert result.extra_cost_bound <= least
            if result.fits:
                assert result.peak_bytes <= budget
                assert result.extra_cost >= least
            if least < INFINITE:
                found += 1
                best += result.fits and result.extra_cost == least
    assert found > 0.8 * len(_problems(in_place))
    assert best == found if exact else best >= 0.6 * found
