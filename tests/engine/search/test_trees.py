"""The best order of trees, against every order of small ones and Liu's algorithm on large ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.effort import SEARCH_EFFORTS
from lowtide.engine.graph import Graph
from lowtide.engine.search import solve
from lowtide.engine.search.optimal_orders import tree_order
from tests.examples import examples
from tests.oracles.least_peak import least_peak
from tests.oracles.liu import liu_peak
from tests.oracles.plans import problem_of
from tests.oracles.random_trees import random_forest, random_tree
from tests.strategies import graphs

forests = st.builds(random_forest, st.integers(0, 10**9), st.sampled_from(range(12)))


@examples(500)
@given(forests, st.booleans())
def test_no_order_of_a_forest_is_better(graph: Graph, in_place: bool) -> None:
    problem = problem_of(graph, in_place=in_place)
    order = tree_order(problem)
    assert order is not None
    assert problem.evaluate(order).peaks[0] == least_peak(problem)


@pytest.mark.parametrize("seed", range(10))
def test_large_trees_get_the_peak_of_lius_algorithm_and_the_proof(seed: int) -> None:
    graph, parents = random_tree(seed, 1000)
    problem = problem_of(graph)
    solution = solve(problem, [problem.given_order()], SEARCH_EFFORTS["fast"])
    assert solution.peaks[0] == liu_peak(parents, graph.sizes.tolist(), graph.scratch.tolist())
    assert solution.optimal


@examples(300)
@given(graphs(9), st.booleans())
def test_what_is_no_forest_gets_no_order(graph: Graph, in_place: bool) -> None:
    """Two users of a buffer, two successors of an op or two memory spaces: what an op frees depends on the order."""
    problem = problem_of(graph, in_place=in_place)
    shared = any(
        graph.buffer(b).lifetime.freeable and graph.sizes[b] and len(users) > 1
        for b, users in enumerate(graph.structure.users)
    )
    branches = any(len(successors) > 1 for successors in graph.structure.successors)
    order = tree_order(problem)
    if graph.n_ops:
        assert (order is None) == (shared or branches or len(graph.spaces) > 1)
