"""Blocks of storage: what residencies become that hand their bytes on."""

import numpy as np
from hypothesis import given

from lowtide.engine.analysis.live_ranges import live_ranges
from lowtide.engine.analysis.storage_blocks import storage_blocks
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import CopyOut, Free, Plan, Run
from tests.oracles.plans import problem_of
from tests.strategies import graphs


def test_a_copy_that_the_first_step_makes_is_not_there_before_it() -> None:
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
