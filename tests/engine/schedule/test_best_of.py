"""The best-of schedulers return the least memory by simulation, the earlier order on a tie."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.analysis import Problem
from lowtide.engine.graph import GraphBuilder, Lifetime
from lowtide.engine.schedule import compare_key, scheduler
from lowtide.engine.schedule.mesh_list import MeshList
from lowtide.engine.schedule.scheduler import Scheduler
from tests.examples import examples
from tests.oracles.random_graphs import random_graph

CANDIDATES = {
    "mesh-best": ("mesh-list", "mesh-list as it was"),
    "xla-best": ("xla-list", "xla-dfs", "xla-postorder"),
    "inductor-best": ("given", "lpmf", "bfs", "dfs"),
}


def _candidate(name: str) -> Scheduler:
    return MeshList(original=True) if name == "mesh-list as it was" else scheduler(name)


@pytest.mark.parametrize("name", CANDIDATES)
@pytest.mark.parametrize("in_place", [False, True])
@examples(100)
@given(seed=st.integers(0, 10**9))
def test_best_is_the_first_candidate_with_the_least_key(name: str, in_place: bool, seed: int) -> None:
    problem = Problem(random_graph(seed), in_place=in_place)
    orders = [_candidate(candidate).order(problem) for candidate in CANDIDATES[name]]
    keys = [compare_key(problem.graph, problem.evaluate(order).peaks.tolist()) for order in orders]
    expected = orders[keys.index(min(keys))]
    assert scheduler(name).order(problem).tolist() == expected.tolist()


def test_excess_weighs_more_than_the_sum_of_peaks() -> None:
    """With 4 persistent bytes in a space of 10, a peak of 8 exceeds it by 2; the other space is unlimited."""
    builder = GraphBuilder("two spaces")
    small, large = builder.add_space("small", capacity_bytes=10), builder.add_space("large")
    builder.add_buffer("weight", 4, Lifetime.PERSISTENT, space=small)
    here = builder.add_buffer("here", 8, space=small)
    there = builder.add_buffer("there", 100, space=large)
    builder.add_op("a", "op", writes=[here])
    builder.add_op("b", "op", reads=[here], writes=[there])
    assert compare_key(builder.build(), [8, 100]) == (2, 108)
