"""Plans of run sequences: residencies end at their last use, and every allowed rerun is correct."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import Plan, verify
from lowtide.engine.recompute.checkpointing import plan_of_runs, rerunnable_ops
from tests.examples import examples
from tests.oracles.replay import replay
from tests.strategies import graphs


@examples(300)
@given(graphs(12))
def test_the_program_itself_becomes_the_baseline(graph: Graph) -> None:
    plan = plan_of_runs(graph, range(graph.n_ops))
    assert sorted(map(str, plan.steps())) == sorted(map(str, Plan.baseline(graph).steps()))
    assert simulate(graph, plan).peak_bytes == simulate(graph, Plan.baseline(graph)).peak_bytes


@examples(500)
@given(graphs(12), st.integers(0, 10**6))
def test_an_op_that_may_run_again_may_do_so_anywhere_after_its_first_run(graph: Graph, seed: int) -> None:
    random = Random(seed)
    may = rerunnable_ops(graph).tolist()
    runs: list[int] = []
    for op in range(graph.n_ops):
        runs += [op, *(other for other in range(op + 1) if may[other] and random.random() < 0.3)]
    plan = plan_of_runs(graph, runs)
    verify(graph, plan, check_capacity=False)
    assert replay(graph, plan) == replay(graph, Plan.baseline(graph))


def test_between_the_last_use_and_the_rerun_a_buffer_takes_no_memory() -> None:
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


def test_random_mutating_ordered_and_outdated_ops_may_not_run_again() -> None:
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
