"""Addresses for executors that run branches at once: sound in every execution, by enumeration of all of them."""

import numpy as np
import pytest
from hypothesis import given

from lowtide.core.errors import UnsupportedError
from lowtide.engine.graph import Graph, GraphBuilder
from lowtide.engine.packing import pack_plan
from lowtide.engine.packing.plan_addresses import Reachability
from lowtide.engine.plan import Plan, Run
from tests.examples import examples
from tests.oracles.concurrent_states import alive_together
from tests.oracles.plans import problem_of
from tests.strategies import graphs


def _places(graph: Graph, plan: Plan) -> dict[int, tuple[int, int, int]]:
    """Return space, first and last byte of every buffer that is not persistent."""
    packing = pack_plan(graph, plan, problem_of(graph).transient, concurrent=True)
    return {row.buffer: (row.space, row.offset, row.offset + int(graph.sizes[row.buffer])) for row in packing.addresses}


def _share_bytes(place: dict[int, tuple[int, int, int]], one: int, two: int) -> bool:
    if one not in place or two not in place:
        return False
    (space, low, high), (other_space, other_low, other_high) = place[one], place[two]
    return space == other_space and low < other_high and other_low < high


@examples(60)
@given(graphs(max_ops=5, callees=False))
def test_no_two_buffers_alive_together_in_any_execution_share_a_byte(graph: Graph) -> None:
    place = _places(graph, Plan.baseline(graph))
    assert not any(_share_bytes(place, *pair) for pair in alive_together(graph))


@examples(60)
@given(graphs(max_ops=5, callees=False))
def test_with_pairs_taken_the_storage_is_sound_or_the_pair_is_refused(graph: Graph) -> None:
    """Only the two buffers of a taken pair may share bytes, and only while the op that takes over runs."""
    problem = problem_of(graph)
    plan = problem.plan(problem.given_order())
    taken = {tuple(sorted(pair)): op for _, op, pairs in plan.taken_pairs() for pair in pairs}
    try:
        place = _places(graph, plan)
    except UnsupportedError as error:
        assert "reuses the storage of" in str(error)  # noqa: PT017
        return
    for pair, times in alive_together(graph).items():
        assert not _share_bytes(place, *pair) or all(taken.get(pair) in running for running in times)


@given(graphs(max_ops=12))
def test_reachability_is_that_of_the_predecessors(graph: Graph) -> None:
    reach = Reachability(graph)
    before: list[set[int]] = []
    for row in graph.structure.predecessors:
        before.append(set(row).union(*(before[op] for op in row)))
    for op in range(graph.n_ops):
        assert np.flatnonzero(reach.after_all([op])).tolist() == [
            later for later in range(graph.n_ops) if op in before[later]
        ]


def _two_branches() -> Graph:
    """Two chains of two ops each; within a chain storage could be used again, across them only in one order."""
    builder = GraphBuilder("branches")
    for branch in "xy":
        first = builder.add_buffer(f"{branch}0", 8)
        second = builder.add_buffer(f"{branch}1", 8)
        third = builder.add_buffer(f"{branch}2", 8)
        builder.add_op(f"{branch}a", "op", writes=[first])
        builder.add_op(f"{branch}b", "op", reads=[first], writes=[second])
        builder.add_op(f"{branch}c", "op", reads=[second], writes=[third])
    return builder.build()


def test_branches_that_may_run_at_once_do_not_share_what_one_order_would_let_them() -> None:
    graph = _two_branches()
    plan, transient = Plan.baseline(graph), problem_of(graph).transient
    assert list(pack_plan(graph, plan, transient).arena_bytes.values()) == [16]
    assert list(pack_plan(graph, plan, transient, concurrent=True).arena_bytes.values()) == [32]


def test_scratch_of_ops_that_may_run_at_once_adds_up() -> None:
    builder = GraphBuilder("scratch")
    for name in "ab":
        builder.add_op(name, "op", scratch_bytes=10)
    graph = builder.build()
    packing = pack_plan(graph, Plan.baseline(graph), problem_of(graph).transient, concurrent=True)
    assert list(packing.arena_bytes.values()) == [20]


def test_plans_that_need_their_order_are_refused() -> None:
    graph = _two_branches()
    rerun = Plan.from_steps(graph, [Run(0), Run(0), *(Run(op) for op in range(1, 6))])
    with pytest.raises(UnsupportedError, match="recomputes ops or copies buffers"):
        pack_plan(graph, rerun, problem_of(graph).transient, concurrent=True)


@pytest.mark.parametrize(
    ("n_ops", "n_buffers", "message"),
    [
        (30_001, 0, "a graph of 30001 ops is too large"),
        (1, 10_001, "10001 buffers are too many"),
        (3_200, 1, "5118400 pairs of buffers may be alive at once, more than 5000000"),
    ],
)
def test_what_is_too_large_is_refused_with_its_size(n_ops: int, n_buffers: int, message: str) -> None:
    builder = GraphBuilder("large")
    for op in range(n_ops):
        builder.add_op(f"op{op}", "op", writes=[builder.add_buffer(f"b{op}.{k}", 8) for k in range(n_buffers)])
    graph = builder.build()
    with pytest.raises(UnsupportedError, match=f"{message}.*without `concurrent`"):
        pack_plan(graph, Plan.baseline(graph), np.zeros((n_ops, 1), np.int64), concurrent=True)
