"""Addresses of whole plans: sound, shared by pairs, with room for scratch, and no worse than either packing rule."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, GraphBuilder
from lowtide.engine.packing import Buffers, Packing, pack, pack_plan
from lowtide.engine.packing.rules import RULES
from lowtide.engine.plan import Plan, Run
from tests.examples import examples
from tests.oracles.addresses import addresses_are_sound
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
    """A program without pairs and scratch: live ranges go to both rules as they stand."""
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
