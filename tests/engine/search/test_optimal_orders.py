"""Optimal orders of trees and series-parallel graphs."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.effort import SEARCH_EFFORTS
from lowtide.core.errors import ProofError
from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Graph, GraphBuilder
from lowtide.engine.graph.execution import is_valid_order
from lowtide.engine.schedule import make_candidate
from lowtide.engine.search import check_proof, solve
from lowtide.engine.search.optimal_orders import series_parallel_order, tree_order
from lowtide.engine.search.plain_orders import plain_series_parallel_peak
from lowtide.engine.search.plain_program import PlainProgram
from tests.examples import examples
from tests.oracles.least_peak import least_peak
from tests.oracles.liu import liu_peak
from tests.oracles.plans import problem_of
from tests.oracles.random_series_parallel import random_series_parallel
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
def test_other_graphs_than_forests_get_no_order(graph: Graph, in_place: bool) -> None:
    """A buffer with two users, an op with two successors, or a second memory space."""
    problem = problem_of(graph, in_place=in_place)
    shared = any(
        graph.buffer(b).lifetime.freeable and graph.sizes[b] and len(users) > 1
        for b, users in enumerate(graph.structure.users)
    )
    branches = any(len(successors) > 1 for successors in graph.structure.successors)
    order = tree_order(problem)
    if graph.n_ops:
        assert (order is None) == (shared or branches or len(graph.spaces) > 1)


series_parallel = st.builds(random_series_parallel, st.integers(0, 10**9), st.sampled_from(range(1, 10)))


def _plain_peak(problem: Problem) -> int | None:
    return plain_series_parallel_peak(PlainProgram(problem.graph, problem.transient, problem.in_place, 0))


@examples(300)
@given(series_parallel, st.booleans())
def test_no_order_of_a_series_parallel_graph_is_better(graph: Graph, in_place: bool) -> None:
    problem = problem_of(graph, in_place=in_place)
    order = series_parallel_order(problem)
    assert order is not None
    assert is_valid_order(graph, order)
    assert problem.evaluate(order).peaks[0] == least_peak(problem) == _plain_peak(problem)


@examples(60)
@given(st.builds(random_forest, st.integers(0, 10**9), st.sampled_from(range(1, 9))))
def test_a_forest_is_series_parallel(graph: Graph) -> None:
    problem = problem_of(graph)
    order = series_parallel_order(problem)
    assert order is not None
    assert problem.evaluate(order).peaks[0] == least_peak(problem)


@examples(200)
@given(graphs(8), st.booleans())
def test_any_graph_gets_its_best_order_or_none_confirmed_by_the_checker(graph: Graph, in_place: bool) -> None:
    problem = problem_of(graph, in_place=in_place)
    order = series_parallel_order(problem)
    if order is not None:
        assert is_valid_order(graph, order)
        assert problem.evaluate(order).peaks[0] == least_peak(problem) == _plain_peak(problem)
    elif graph.n_ops and len(graph.spaces) == 1:
        assert _plain_peak(problem) is None


def _graph(reads: list[list[int]]) -> Graph:
    """Return a graph with one op and one buffer of k bytes per row k; a row lists the ops that it reads."""
    builder = GraphBuilder("by reads")
    for op, row in enumerate(reads):
        builder.add_op(f"op{op}", "op", reads=row, writes=[builder.add_buffer(f"b{op}", op + 1)])
    return builder.build()


@pytest.mark.parametrize(
    ("reads", "applies"),
    [
        pytest.param([[], [0], [1], [0, 2]], True, id="a residual connection around a chain"),
        pytest.param([[], [0], [0], [1, 2]], False, id="two branches read one buffer, either may free it"),
        pytest.param([[], [0], [0], [0, 1, 2]], True, id="two branches and their join read one buffer"),
        pytest.param([[], [], [0], [0, 1], [1]], False, id="paths that cross"),
    ],
)
def test_it_applies_if_dependencies_nest_and_frees_are_fixed(reads: list[list[int]], applies: bool) -> None:
    problem = problem_of(_graph(reads))
    assert (series_parallel_order(problem) is not None) == (_plain_peak(problem) is not None) == applies


@pytest.mark.parametrize("seed", range(3))
def test_optimal_peaks_of_large_graphs_are_confirmed(seed: int) -> None:
    graph = random_series_parallel(seed, 2000, largest=1000)
    problem = problem_of(graph)
    solution = solve(problem, [problem.given_order()], SEARCH_EFFORTS["fast"])
    assert solution.optimal
    assert solution.peaks[0] == _plain_peak(problem)


def test_a_wrong_optimal_peak_is_refused() -> None:
    graph = random_series_parallel(7, 60, largest=1000)
    proof = make_candidate("search", graph, in_place=True).proof
    assert proof is not None
    (space,) = proof.spaces
    assert space.tree_bytes is not None
    (checked,) = check_proof(graph, proof)
    assert checked.confirmed_bytes == space.bound_bytes
    for wrong in (space.tree_bytes - 1, space.tree_bytes + 1):
        forged = msgspec.structs.replace(space, tree_bytes=wrong, bound_bytes=max(space.cut_bytes, wrong))
        with pytest.raises(ProofError, match="series-parallel graph with an optimal peak of"):
            check_proof(graph, msgspec.structs.replace(proof, spaces=(forged,)))
