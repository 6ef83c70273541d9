"""Curves over several budgets are monotone and have a knee."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import UsageError
from lowtide.engine.graph import Graph
from lowtide.engine.plan import verify
from lowtide.engine.recompute import plan_curve, plan_within_budget
from tests.examples import examples
from tests.oracles.plans import problem_of
from tests.oracles.residual_chain import residual_chain
from tests.strategies import graphs


@examples(80)
@given(graphs(24), st.lists(st.integers(0, 110), min_size=2, max_size=6))
def test_a_smaller_budget_never_gives_a_larger_peak_or_a_smaller_cost_or_bound(
    graph: Graph, percents: list[int]
) -> None:
    problem = problem_of(graph)
    order = problem.given_order()
    peak = int(problem.evaluate(order).peaks[0])
    curve = plan_curve(problem, [("given", order)], [peak * percent // 100 for percent in percents], exact=False)
    for point in curve.points:
        verify(graph, point.plan, check_capacity=False)
        assert point.fits == (point.peak_bytes <= point.budget_bytes) == (point.shortfall is None)
    for larger, smaller in zip(curve.points, curve.points[1:], strict=False):
        assert smaller.budget_bytes < larger.budget_bytes
        assert smaller.extra_cost_bound >= larger.extra_cost_bound
        assert larger.fits or not smaller.fits
        if smaller.fits:
            assert smaller.peak_bytes <= larger.peak_bytes
            assert smaller.extra_cost >= larger.extra_cost


def test_no_point_of_a_curve_costs_more_than_planning_for_its_budget() -> None:
    problem = problem_of(residual_chain(20))
    curve = plan_curve(problem, [("given", problem.given_order())])
    assert len(curve.points) == 7
    for point in curve.points:
        alone = plan_within_budget(problem, problem.given_order(), point.budget_bytes)
        assert not alone.fits or point.extra_cost <= alone.extra_cost


def test_the_knee_is_where_bytes_become_expensive() -> None:
    """One result is expensive to recompute: at the knee only that one is kept."""
    graph = residual_chain(8, costs=[0.1] * 7 + [100.0])
    problem = problem_of(graph)
    peak = int(problem.evaluate(problem.given_order()).peaks[0])
    curve = plan_curve(problem, [("given", problem.given_order())], [peak - 8 * k for k in range(8)])
    assert curve.knee is not None
    costs = [point.extra_cost for point in curve.points if point.fits]
    assert curve.points[curve.knee].extra_cost < costs[-1]
    assert curve.points[curve.knee].peak_bytes < peak


def test_a_curve_of_one_budget_is_refused() -> None:
    problem = problem_of(residual_chain(5))
    with pytest.raises(UsageError, match="a curve of 1 budgets"):
        plan_curve(problem, [("given", problem.given_order())], [100])
