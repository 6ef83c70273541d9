"""Equal layers are left out so that the program of fewer layers remains, and its route fits the whole program."""

import numpy as np
import pytest

from lowtide.engine.analysis import Problem
from lowtide.engine.plan import verify
from lowtide.engine.recompute import ComposeSettings, compose, composition
from lowtide.engine.recompute.fewer_layers import with_fewer_layers
from lowtide.engine.recompute.repeats import op_classes
from tests.oracles.layered_step import layered_step
from tests.strategies import random_graph

LAYERS = 24


@pytest.mark.parametrize("layers", [3, 6, 7])
def test_a_stack_with_fewer_layers_is_the_stack_built_with_that_many(layers: int) -> None:
    built = layered_step(layers)
    fewer = with_fewer_layers(Problem(layered_step(LAYERS)), layers)
    assert fewer is not None
    found = fewer.problem.graph
    assert op_classes(found, range(found.n_ops)).tolist() == op_classes(built, range(built.n_ops)).tolist()
    order = np.arange(built.n_ops, dtype=np.int32)
    assert fewer.problem.evaluate(order).peaks.tolist() == Problem(built).evaluate(order).peaks.tolist()
    assert fewer.all_layers - fewer.layers == LAYERS - layers


def test_a_budget_for_fewer_layers_leaves_each_layer_as_much() -> None:
    whole = Problem(layered_step(LAYERS))
    fewer = with_fewer_layers(whole, 6)
    assert fewer is not None
    peaks = [int(problem.evaluate(problem.given_order()).peaks[0]) for problem in (whole, fewer.problem)]
    assert fewer.budget(whole, peaks[0]) == peaks[1]
    half = fewer.budget(whole, peaks[0] // 2)
    assert half is not None
    assert half < peaks[1]


@pytest.mark.parametrize("seed", range(20))
def test_a_program_without_layers_stays_whole(seed: int) -> None:
    assert with_fewer_layers(Problem(random_graph(seed, 40)), 3) is None


@pytest.mark.parametrize("share", [0.7, 0.5, 0.3])
def test_the_route_of_a_few_layers_costs_little_more_than_all_searches(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    graph = layered_step(LAYERS)
    problem = Problem(graph)
    orders = [("given", problem.given_order())]
    budget = int(share * problem.evaluate(orders[0][1]).peaks[0])
    searched = compose(problem, orders, budget, ComposeSettings(effort="fast"))
    monkeypatch.setattr(composition, "_MANY_OPS", 0)
    found = compose(problem, orders, budget, ComposeSettings(effort="fast"))
    assert searched.result.fits
    assert found.result.fits
    assert found.result.extra_cost <= 1.04 * searched.result.extra_cost
    assert found.result.extra_cost_bound <= found.result.extra_cost
    verify(graph, found.result.plan)
