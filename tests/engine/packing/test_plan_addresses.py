"""Addresses of plans, in one order of their ops or in any order."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import UnsupportedError
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, GraphBuilder
from lowtide.engine.packing import Buffers, Packing, pack, pack_plan
from lowtide.engine.packing.plan_addresses import Reachability
from lowtide.engine.packing.rules import RULES
from lowtide.engine.plan import Plan, Run
from tests.examples import examples
from tests.oracles.addresses import addresses_are_sound
from tests.oracles.concurrent_states import alive_together
from tests.oracles.plans import claim, problem_of
from tests.strategies import graphs, rematerializing_plan

seeds = st.integers(0, 10**6)


def _some_plan(graph: Graph, seed: int) -> Plan:
    problem = problem_of(graph)
    return problem.plan(problem.given_order()) if seed % 2 else rematerializing_plan(graph, Random(seed))


def _pack(graph: Graph, plan: Plan) -> Packing:
    return pack_plan(graph, plan, problem_of(graph).transient)


@examples(300)
@given(graphs(max_ops=10), seeds)
def test_no_two_residencies_share_a_byte_and_all_fit_an_arena_no_smaller_than_the_peak(graph: Graph, seed: int) -> None:
    plan = _some_plan(graph, seed)
    assert addresses_are_sound(graph, claim(graph, plan))
    arena = _pack(graph, plan).arena_bytes
    assert all(arena[space] >= peak for space, peak in simulate(graph, plan).peak_bytes.items())


@given(graphs(max_ops=10))
def test_a_taken_pair_has_one_offset(graph: Graph) -> None:
    problem = problem_of(graph)
    plan = problem.plan(problem.given_order())
    addresses = _pack(graph, plan).addresses
    starts = {(row.buffer, row.first_step): row.offset for row in addresses}
    ends = {(row.buffer, row.last_step): row.offset for row in addresses}
    for step, row in enumerate(plan.steps()):
        for read, written in row.pairs if isinstance(row, Run) else ():
            assert ends.get((read, step)) == starts.get((written, step))


@examples(300)
@given(graphs(max_ops=10), seeds)
def test_scratch_of_every_run_has_an_aligned_hole_of_its_size_in_the_arena(graph: Graph, seed: int) -> None:
    plan = _some_plan(graph, seed)
    packing, transient = _pack(graph, plan), problem_of(graph).transient
    for step, row in enumerate(plan.steps()):
        if not isinstance(row, Run):
            continue
        for number, space in enumerate(graph.spaces):
            spans = sorted(
                (address.offset, address.offset + graph.buffer(address.buffer).size_bytes)
                for address in packing.addresses
                if address.space == number and address.first_step <= step < address.last_step
            )
            ceilings = [start for start, _ in spans] + [packing.arena_bytes[space.name]]
            floors = [0] + [-(-end // space.alignment) * space.alignment for _, end in spans]
            holes = [ceiling - floor for ceiling, floor in zip(ceilings, floors, strict=True)]
            assert max(holes) >= int(transient[row.op, number])


@given(graphs(max_ops=10), seeds)
def test_buffers_without_bytes_have_no_address_and_all_others_one_a_residency(graph: Graph, seed: int) -> None:
    rows = [(row.buffer, row.first_step) for row in _pack(graph, _some_plan(graph, seed)).addresses]
    assert all(graph.buffer(buffer).size_bytes > 0 for buffer, _ in rows)
    needing = {b for b in range(graph.n_buffers) if graph.sizes[b] and graph.structure.producers[b] >= 0}
    assert needing <= {buffer for buffer, _ in rows}


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5)), min_size=1, max_size=12))
def test_the_arena_is_the_better_of_both_rules(drawn: list[tuple[int, int]]) -> None:
    """Without pairs and scratch, the rules get the live ranges unchanged."""
    builder = GraphBuilder("ranges")
    made = [builder.add_buffer(f"b{k}", size) for k, (size, _) in enumerate(drawn)]
    for k, buffer in enumerate(made):
        dying = [made[other] for other, (_, life) in enumerate(drawn[:k]) if other + life >= k]
        builder.add_op(f"op{k}", "op", reads=dying, writes=[buffer])
    graph = builder.build()
    plan = Plan.baseline(graph)
    packing = _pack(graph, plan)
    first, last = (
        np.array([getattr(row, name) for row in packing.addresses], np.int64) for name in ("first_step", "last_step")
    )
    sizes = np.array([graph.buffer(row.buffer).size_bytes for row in packing.addresses], np.int64)
    arenas = [pack(Buffers(first, last, sizes), method=rule).arena_bytes for rule in RULES]
    assert packing.arena_bytes["device"] <= min(arenas)


@given(graphs(), seeds)
def test_packing_twice_gives_the_same_addresses(graph: Graph, seed: int) -> None:
    assert _pack(graph, _some_plan(graph, seed)) == _pack(graph, _some_plan(graph, seed))


def test_scratch_of_ops_that_follow_one_another_shares_its_bytes() -> None:
    builder = GraphBuilder("scratch")
    for k in range(3):
        builder.add_op(f"op{k}", "op", scratch_bytes=10 + k)
    graph = builder.build()
    assert _pack(graph, Plan.baseline(graph)) == Packing((), {"device": 12}, {"device": 12})


def test_a_graph_without_ops_needs_no_arena() -> None:
    graph = GraphBuilder("empty").build()
    assert _pack(graph, Plan.baseline(graph)) == Packing((), {"device": 0}, {"device": 0})


def _places(graph: Graph, plan: Plan) -> dict[int, tuple[int, int, int]]:
    """Return space, first and last byte of every non-persistent buffer."""
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
def test_in_place_pairs_have_valid_storage_or_are_refused(graph: Graph) -> None:
    """Only in-place pairs may share bytes, and only while their op runs."""
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
    """Return two chains of two ops. Storage can be reused across chains only in one order."""
    builder = GraphBuilder("branches")
    for branch in "xy":
        first = builder.add_buffer(f"{branch}0", 8)
        second = builder.add_buffer(f"{branch}1", 8)
        third = builder.add_buffer(f"{branch}2", 8)
        builder.add_op(f"{branch}a", "op", writes=[first])
        builder.add_op(f"{branch}b", "op", reads=[first], writes=[second])
        builder.add_op(f"{branch}c", "op", reads=[second], writes=[third])
    return builder.build()


def test_concurrent_branches_do_not_share_storage() -> None:
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


def test_plans_with_a_fixed_order_are_refused() -> None:
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
def test_large_inputs_are_refused_with_their_size(n_ops: int, n_buffers: int, message: str) -> None:
    builder = GraphBuilder("large")
    for op in range(n_ops):
        builder.add_op(f"op{op}", "op", writes=[builder.add_buffer(f"b{op}.{k}", 8) for k in range(n_buffers)])
    graph = builder.build()
    with pytest.raises(UnsupportedError, match=f"{message}.*without `concurrent`"):
        pack_plan(graph, Plan.baseline(graph), np.zeros((n_ops, 1), np.int64), concurrent=True)
