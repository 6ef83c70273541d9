"""Live ranges against the simulator, and on plans made by hand."""

from dataclasses import fields
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.analysis import simulate
from lowtide.engine.analysis.live_ranges import LiveRanges, live_ranges, storage_blocks
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Run
from tests.oracles.plans import problem_of
from tests.oracles.random_plans import random_plan
from tests.oracles.walked_ranges import walked_ranges
from tests.strategies import graphs, rematerializing_plan


def _rows(graph: Graph, plan: Plan) -> list[tuple[str, int, int, int, int]]:
    ranges = live_ranges(graph, plan)
    names = [graph.buffer_names[buffer] for buffer in ranges.buffers]
    columns = (ranges.spaces, ranges.first_steps, ranges.last_steps, ranges.continues)
    return list(zip(names, *(column.tolist() for column in columns), strict=True))


@given(graphs(), st.integers(0, 10**6))
def test_the_sizes_of_all_residencies_add_up_to_the_simulated_bytes_at_every_step(graph: Graph, seed: int) -> None:
    plan = rematerializing_plan(graph, Random(seed))
    ranges = live_ranges(graph, plan)
    live = simulate(graph, plan).live
    transient = problem_of(graph).transient
    for step, (kind, target) in enumerate(zip(plan.kinds.tolist(), plan.targets.tolist(), strict=True)):
        here = (ranges.first_steps <= step) & (step < ranges.last_steps)
        for space in range(len(graph.spaces)):
            held = int(graph.sizes[ranges.buffers[here & (ranges.spaces == space)]].sum())
            assert held + (int(transient[target, space]) if kind == 0 else 0) == live[step + 1, space]


@given(graphs(), st.integers(0, 10**6))
def test_residencies_are_those_that_a_walk_over_the_steps_finds(graph: Graph, seed: int) -> None:
    for plan in (rematerializing_plan(graph, Random(seed)), random_plan(graph, Random(seed))):
        found, walked = live_ranges(graph, plan), walked_ranges(graph, plan)
        for field in fields(LiveRanges):
            assert np.array_equal(getattr(found, field.name), getattr(walked, field.name)), field.name


@given(graphs())
def test_a_pair_joins_two_residencies_of_one_size_at_one_step(graph: Graph) -> None:
    problem = problem_of(graph)
    plan = problem.plan(problem.given_order())
    ranges = live_ranges(graph, plan)
    joined = np.flatnonzero(ranges.continues >= 0)
    assert len(joined) == len(plan.pairs.values) // 2
    for row in joined.tolist():
        before = int(ranges.continues[row])
        assert ranges.last_steps[before] == ranges.first_steps[row]
        assert ranges.spaces[before] == ranges.spaces[row]
        assert graph.sizes[ranges.buffers[before]] == graph.sizes[ranges.buffers[row]]


def test_inputs_are_resident_from_the_first_step_and_persistent_buffers_are_left_out() -> None:
    builder = GraphBuilder("small")
    weight = builder.add_buffer("weight", 8, Lifetime.PERSISTENT)
    kept = builder.add_buffer("kept", 8, Lifetime.INPUT)
    given_away = builder.add_buffer("given away", 8, Lifetime.DONATED)
    out = builder.add_buffer("out", 8, Lifetime.OUTPUT)
    builder.add_op("add", "add", reads=[weight, kept, given_away], writes=[out], in_place=[(given_away, out)])
    graph = builder.build()
    plan = Plan.from_steps(graph, [Run(0, ((given_away, out),))])
    assert _rows(graph, plan) == [("kept", 0, 0, 1, -1), ("given away", 0, 0, 0, -1), ("out", 0, 0, 1, 1)]


def test_a_rerun_beside_its_first_copy_keeps_both_for_one_step() -> None:
    builder = GraphBuilder("rerun")
    made = builder.add_buffer("made", 8)
    builder.add_op("make", "make", writes=[made])
    graph = builder.build()
    assert _rows(graph, Plan.from_steps(graph, [Run(0), Run(0), Free(made)])) == [
        ("made", 0, 0, 2, -1),
        ("made", 0, 1, 2, -1),
    ]


def test_a_copy_is_a_residency_of_its_own_in_the_other_space() -> None:
    builder = GraphBuilder("copies")
    for space in ("device", "host"):
        builder.add_space(space)
    made = builder.add_buffer("made", 8)
    builder.add_op("make", "make", writes=[made])
    builder.add_op("use", "use", reads=[made])
    graph = builder.build()
    steps = [Run(0), CopyOut(made, 1), Free(made), CopyIn(made, 1), Free(made, 1), Run(1), Free(made)]
    assert _rows(graph, Plan.from_steps(graph, steps)) == [
        ("made", 0, 0, 2, -1),
        ("made", 1, 1, 4, -1),
        ("made", 0, 3, 6, -1),
    ]


def test_a_copy_made_by_the_first_step_does_not_exist_before_it() -> None:
    builder = GraphBuilder("small")
    builder.add_space("device", bandwidth_bytes_per_s={"host": 1.0})
    builder.add_space("host")
    given_away = builder.add_buffer("given away", 8, Lifetime.DONATED)
    builder.add_op("use", "use", reads=[given_away])
    graph = builder.build()
    plan = Plan.from_steps(graph, [CopyOut(given_away, 1), Run(0), Free(given_away), Free(given_away, 1)])
    blocks = storage_blocks(graph, live_ranges(graph, plan))
    found = list(zip(blocks.spaces.tolist(), blocks.first_steps.tolist(), blocks.last_steps.tolist(), strict=True))
    assert found == [(0, -1, 2), (1, 0, 3)]


@given(graphs())
def test_a_block_lasts_from_its_first_residency_to_the_end_of_its_last(graph: Graph) -> None:
    problem = problem_of(graph)
    ranges = live_ranges(graph, problem.plan(problem.given_order()))
    blocks = storage_blocks(graph, ranges)
    for block in range(len(blocks)):
        rows = np.flatnonzero(blocks.of_residency == block)
        assert (ranges.continues[rows] >= 0).sum() == len(rows) - 1
        assert max(blocks.first_steps[block], 0) == ranges.first_steps[rows].min()
        assert blocks.last_steps[block] == ranges.last_steps[rows].max()
        assert (graph.sizes[ranges.buffers[rows]] == blocks.sizes[block]).all()
        assert (ranges.spaces[rows] == blocks.spaces[block]).all()
