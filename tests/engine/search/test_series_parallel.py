"""The best order of series-parallel graphs, against every order of small ones and the plain checker on large ones."""

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
from lowtide.engine.search.plain_program import PlainProgram
from lowtide.engine.search.plain_series_parallel import plain_series_parallel_peak
from lowtide.engine.search.series_parallel import series_parallel_order
from tests.examples import examples
from tests.oracles.least_peak import least_peak
from tests.oracles.plans import problem_of
from tests.oracles.random_series_parallel import random_series_parallel
from tests.oracles.random_trees import random_forest
from tests.strategies import graphs

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
def test_any_graph_gets_its_best_order_or_none_and_so_says_the_checker(graph: Graph, in_place: bool) -> None:
    problem = problem_of(graph, in_place=in_place)
    order = series_parallel_order(problem)
    if order is not None:
        assert is_valid_order(graph, order)
        assert problem.evaluate(order).peaks[0] == least_peak(problem) == _plain_peak(problem)
    elif graph.n_ops and len(graph.spaces) == 1:
        assert _plain_peak(problem) is None


def _graph(reads: list[list[int]]) -> Graph:
    """One op a row and one buffer an op, of 1, 2, 3, ... bytes; rows hold the ops whose buffers are read."""
    builder = GraphBuilder("by reads")
    for op, row in enumerate(reads):
        builder.add_op(f"op{op}", "op", reads=row, writes=[builder.add_buffer(f"b{op}", op + 1)])
    return builder.build()


@pytest.mark.parametrize(
    ("reads", "applies"),
    [
        pytest.param([[], [0], [1], [0, 2]], True, id="a residual connection around a chain"),
        pytest.param([[], [0], [0], [1, 2]], False, id="two branches read one buffer, either may free it"),
        pytest.param([[], [0], [0], [0, 1, 2]], True, id="two branches read one buffer, and so does what joins them"),
        pytest.param([[], [], [0], [0, 1], [1]], False, id="paths that cross"),
    ],
)
def test_it_applies_where_the_dependences_nest_and_the_op_that_frees_is_known(
    reads: list[list[int]], applies: bool
) -> None:
    problem = problem_of(_graph(reads))
    assert (series_parallel_order(problem) is not None) == (_plain_peak(problem) is not None) == applies


@pytest.mark.parametrize("seed", range(3))
def test_large_graphs_are_settled_with_a_proof_that_the_checker_confirms(seed: int) -> None:
    graph = random_series_parallel(seed, 2000, largest=1000)
    problem = problem_of(graph)
    solution = solve(problem, [problem.given_order()], SEARCH_EFFORTS["fast"])
    assert solution.optimal
    assert solution.peaks[0] == _plain_peak(problem)


def test_a_least_peak_that_is_none_is_refused() -> None:
    graph = random_series_parallel(7, 60, largest=1000)
    proof = make_candidate("search", graph, in_place=True).proof
    assert proof is not None
    (space,) = proof.spaces
    assert space.tree_bytes is not None
    (checked,) = check_proof(graph, proof)
    assert checked.confirmed_bytes == space.bound_bytes
    for wrong in (space.tree_bytes - 1, space.tree_bytes + 1):
        forged = msgspec.structs.replace(space, tree_bytes=wrong, bound_bytes=max(space.cut_bytes, wrong))
        with pytest.raises(ProofError, match="nor series-parallel with one"):
            check_proof(graph, msgspec.structs.replace(proof, spaces=(forged,)))
