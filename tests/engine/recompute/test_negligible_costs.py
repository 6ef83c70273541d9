"""Plans that cost negligibly more than their bound end the search."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.graph import Graph
from lowtide.engine.recompute import ComposeSettings, compose
from tests.examples import examples
from tests.oracles.plans import problem_of
from tests.oracles.residual_chain import residual_chain
from tests.strategies import graphs


def _cost(graph: Graph, percent: int, negligible: float) -> tuple[bool, float]:
    problem = problem_of(graph, in_place=False)
    order = problem.given_order()
    budget = int(problem.evaluate(order).peaks[0]) * percent // 100
    settings = ComposeSettings(reorder=False, effort="fast", negligible=negligible)
    found = compose(problem, [("given", order)], budget, settings).result
    return found.fits, found.extra_cost


@examples(60)
@given(graphs(24), st.integers(20, 100), st.sampled_from([0.005, 0.1, 1.0]))
def test_a_plan_costs_at_most_the_negligible_share_more(graph: Graph, percent: int, share: float) -> None:
    fits, cost = _cost(graph, percent, share)
    fits_without, least = _cost(graph, percent, 0.0)
    assert fits == fits_without
    assert not fits or cost <= least + share * float(graph.cost.sum()) + 1e-9


@pytest.mark.parametrize("percent", [30, 50, 70])
def test_the_first_plan_of_a_chain_is_returned_if_any_cost_is_negligible(percent: int) -> None:
    """The plan only has to fit."""
    chain = residual_chain(60)
    fits, cost = _cost(chain, percent, 1.0)
    assert fits
    assert cost <= _cost(chain, percent, 0.0)[1] + float(chain.cost.sum())
