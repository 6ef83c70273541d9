"""A plan with recomputation as a graph, and the orders of its runs."""

from random import Random

import numpy as np

from lowtide import minimize
from lowtide.engine.analysis import Problem
from lowtide.engine.graph.execution import is_valid_order
from lowtide.engine.recompute.unrolled import first_runs, unroll
from tests.examples import share_of
from tests.oracles.random_plans import random_order
from tests.strategies import random_graph


def test_first_runs_of_every_order_of_a_plans_runs_are_an_order_of_the_program() -> None:
    """A run that moves ahead of its op's first run becomes the first run, with the same dependences."""
    with_reruns = 0
    seeds = share_of(range(40), 4)
    for seed in seeds:
        graph = random_graph(seed, 25)
        found = minimize(graph, budget="70%", allow=("reorder", "recompute"), effort="fast", addresses=False)
        with_reruns += found.reruns > 0
        unrolled = unroll(Problem(graph), found.plan.order().tolist())
        for draw in range(5):
            order = np.asarray(random_order(unrolled.graph, Random(draw)), np.int32)
            assert is_valid_order(graph, first_runs(unrolled.runs(order)))
    assert with_reruns >= len(seeds) // 4
