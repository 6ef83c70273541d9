"""Among orders of equal peak, the one with the least arena is kept."""

from dataclasses import replace

import pytest

from lowtide.engine.graph import Graph
from lowtide.engine.packing import pack_plan
from lowtide.engine.plan import verify
from lowtide.engine.schedule import Candidate, make_candidate, with_least_arena
from tests.examples import share_of
from tests.strategies import random_graph


def arena_of(graph: Graph, candidate: Candidate) -> int:
    assert candidate.solved is not None
    return sum(pack_plan(graph, candidate.plan, candidate.solved.problem.transient).arena_bytes.values())


def test_the_arena_never_grows_the_peak_stays_and_some_arenas_shrink() -> None:
    shrunk = 0
    for seed in share_of(range(25), 3):
        graph = random_graph(seed, 60)
        candidate = make_candidate("search", graph, in_place=True, effort="fast")
        chosen = with_least_arena(candidate)
        verify(graph, chosen.plan, check_capacity=False)
        assert all(chosen.plan.peak_bytes[space] <= peak for space, peak in candidate.plan.peak_bytes.items())
        assert arena_of(graph, chosen) <= arena_of(graph, candidate)
        assert chosen.solved is candidate.solved
        shrunk += arena_of(graph, chosen) < arena_of(graph, candidate)
    assert shrunk


@pytest.mark.parametrize("name", ["given", "lpmf"])
def test_the_plan_of_a_named_order_is_unchanged(name: str) -> None:
    candidate = make_candidate(name, random_graph(3, 60), in_place=True)
    assert with_least_arena(candidate) is candidate


def test_nothing_more_is_tried_after_ctrl_c() -> None:
    candidate = replace(make_candidate("search", random_graph(3, 60), in_place=True, effort="fast"), interrupted=True)
    assert with_least_arena(candidate) is candidate
