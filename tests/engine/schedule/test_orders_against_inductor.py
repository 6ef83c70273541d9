"""Compare orders and peaks with Inductor's own functions.

Results with elements are compared in tests/frameworks/inductor_export.
"""

from hypothesis import assume, given
from hypothesis import strategies as st

from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.schedule import scheduler
from lowtide.engine.schedule.inductor import Lpmf, view_by_elements
from tests.examples import examples
from tests.oracles.inductor import Inductor
from tests.oracles.random_graphs import random_graph

SEEDS = st.integers(0, 10**9)
many = examples(300)


@many
@given(seed=SEEDS, threshold=st.sampled_from([0, 1, 2, 5, 100]))
def test_lpmf_is_inductors_with_every_threshold(seed: int, threshold: int) -> None:
    problem = Problem(random_graph(seed))
    assert Lpmf(threshold_bytes=threshold).order(problem).tolist() == Inductor(problem).lpmf(threshold)


def _problem(seed: int) -> Problem:
    problem = Problem(random_graph(seed))
    assume(view_by_elements(problem) is problem.native)
    return problem


@many
@given(seed=SEEDS)
def test_bfs_is_inductors(seed: int) -> None:
    problem = _problem(seed)
    assert scheduler("bfs").order(problem).tolist() == Inductor(problem).bfs()


@many
@given(seed=SEEDS)
def test_dfs_is_inductors(seed: int) -> None:
    problem = _problem(seed)
    assert scheduler("dfs").order(problem).tolist() == Inductor(problem).dfs()


@many
@given(seed=SEEDS)
def test_best_is_the_first_with_the_least_of_inductors_estimates(seed: int) -> None:
    """The graphs have no scratch, further spaces, capacities or pairs, which Inductor does not model."""
    problem = Problem(random_graph(seed, plain=True, limited=False), in_place=False)
    real = Inductor(problem)
    candidates = [problem.given_order().tolist(), real.lpmf(), real.bfs(), real.dfs()]
    before_the_first_op = _donated_bytes(problem.graph)
    best = min(candidates, key=lambda order: max(before_the_first_op, real.peak(order)))
    assert scheduler("inductor-best").order(problem).tolist() == best


@many
@given(seed=SEEDS)
def test_both_of_inductors_estimators_give_our_peak(seed: int) -> None:
    problem = Problem(random_graph(seed, plain=True), in_place=False)
    order = scheduler("lpmf").order(problem)
    ours = int(problem.evaluate(order).peaks[0])
    real = Inductor(problem)
    before_the_first_op = _donated_bytes(problem.graph)
    assert ours == max(before_the_first_op, real.peak(order.tolist()))
    assert ours == max(before_the_first_op, real.peak_by_phases(order.tolist()))


def _donated_bytes(graph: Graph) -> int:
    """Return the bytes of donated inputs before the first op; Inductor ignores unused ones."""
    return int(graph.sizes[graph.lifetimes == Lifetime.DONATED].sum())
