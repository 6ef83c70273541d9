"""Plans of run sequences, and Chen's segments: correct on every graph, sqrt(n) on chains."""

import math
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import UsageError
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime, read_graph_file
from lowtide.engine.plan import Plan, verify
from lowtide.engine.recompute.checkpointing import plan_of_runs, rerunnable_ops, segment_plan
from tests.examples import examples
from tests.oracles.replay import replay
from tests.strategies import graphs


@examples(300)
@given(graphs(12))
def test_the_program_order_gives_the_baseline(graph: Graph) -> None:
    plan = plan_of_runs(graph, range(graph.n_ops))
    assert sorted(map(str, plan.steps())) == sorted(map(str, Plan.baseline(graph).steps()))
    assert simulate(graph, plan).peak_bytes == simulate(graph, Plan.baseline(graph)).peak_bytes


@examples(500)
@given(graphs(12), st.integers(0, 10**6))
def test_a_rerunnable_op_can_be_recomputed_anywhere_after_its_first_run(graph: Graph, seed: int) -> None:
    random = Random(seed)
    may = rerunnable_ops(graph).tolist()
    runs: list[int] = []
    for op in range(graph.n_ops):
        runs += [op, *(other for other in range(op + 1) if may[other] and random.random() < 0.3)]
    plan = plan_of_runs(graph, runs)
    verify(graph, plan, check_capacity=False)
    assert replay(graph, plan) == replay(graph, Plan.baseline(graph))


def test_a_buffer_is_freed_between_its_last_use_and_the_recomputed_run() -> None:
    builder = GraphBuilder("gap")
    a, b, big = builder.add_buffer("a", 10), builder.add_buffer("b", 1), builder.add_buffer("big", 100)
    c = builder.add_buffer("c", 1, Lifetime.OUTPUT)
    builder.add_op("a", "op", writes=[a])
    builder.add_op("b", "op", reads=[a], writes=[b])
    builder.add_op("big", "op", writes=[big])
    builder.add_op("c", "op", reads=[a, b], writes=[c])
    graph = builder.build()
    assert simulate(graph, plan_of_runs(graph, [0, 1, 2, 3])).peak_bytes["device"] == 111
    assert simulate(graph, plan_of_runs(graph, [0, 1, 2, 0, 3])).peak_bytes["device"] == 101


def test_random_mutating_ordered_and_outdated_ops_cannot_be_recomputed() -> None:
    builder = GraphBuilder("effects")
    x, y = builder.add_buffer("x", 1, Lifetime.INPUT), builder.add_buffer("y", 1)
    z, w = builder.add_buffer("z", 1), builder.add_buffer("w", 1)
    builder.add_op("reads x before it changes", "op", reads=[x], writes=[y])
    builder.add_op("random", "op", writes=[z], pure=False)
    builder.add_op("mutates x", "op", mutates=[x])
    builder.add_op("ordered", "op", reads=[x], ordered=True)
    builder.add_op("writes w", "op", reads=[x], writes=[w])
    builder.add_op("writes w again", "op", writes=[w])
    builder.add_op("reads all", "op", reads=[x, y, z, w])
    assert rerunnable_ops(builder.build()).tolist() == [False] * 6 + [True]


def _chain(n_layers: int) -> Graph:
    """Return a chain of layers and its backward pass, which reads the input of every layer."""
    builder = GraphBuilder("chain")
    x = builder.add_buffer("x", 1, Lifetime.INPUT)
    values = [x]
    for k in range(n_layers):
        values.append(builder.add_buffer(f"h{k}", 1))
        builder.add_op(f"f{k}", "layer", reads=[values[-2]], writes=[values[-1]])
    gradient = values[-1]
    for k in reversed(range(n_layers)):
        result = builder.add_buffer(f"g{k}", 1, Lifetime.INTERMEDIATE if k else Lifetime.OUTPUT)
        builder.add_op(f"b{k}", "gradient", reads=[gradient, values[k]], writes=[result])
        gradient = result
    return builder.build()


@pytest.mark.parametrize("n_layers", [1, 2, 9, 100, 1000])
def test_the_peak_of_a_chain_is_in_the_square_root_for_one_more_forward_pass(n_layers: int) -> None:
    graph = _chain(n_layers)
    plan = segment_plan(graph)
    assert simulate(graph, Plan.baseline(graph)).peak_bytes["device"] >= n_layers + 1
    assert simulate(graph, plan).peak_bytes["device"] <= 2 * math.isqrt(n_layers) + 5
    assert len(plan.order()) <= graph.n_ops + n_layers


@examples(300)
@given(graphs(16), st.integers(0, 10**6))
def test_the_plan_of_every_graph_computes_the_same_as_the_program(graph: Graph, seed: int) -> None:
    random = Random(seed)
    plan = segment_plan(graph, backward_from=random.randint(0, graph.n_ops), n_segments=random.randint(1, 6))
    verify(graph, plan, check_capacity=False)
    assert replay(graph, plan) == replay(graph, Plan.baseline(graph))


def test_a_real_training_step_needs_less_memory() -> None:
    graph = read_graph_file(Path(__file__).parents[2] / "data" / "graphs" / "unet_plain_b4.step.graph.json.gz")
    before, after = (simulate(graph, plan).peak_bytes["device"] for plan in (Plan.baseline(graph), segment_plan(graph)))
    assert after < before


def test_numbers_out_of_range_are_refused() -> None:
    graph = _chain(3)
    with pytest.raises(UsageError, match="cannot start at op 7; give a number from 0 to 6"):
        segment_plan(graph, backward_from=7)
    with pytest.raises(UsageError, match="cannot be cut into 0 segments"):
        segment_plan(graph, n_segments=0)
