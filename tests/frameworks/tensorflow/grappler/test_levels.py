"""Every level on every graph gives a plan that computes what the program computes; wrong calls are refused."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import UsageError
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, GraphBuilder
from lowtide.engine.plan import Plan, verify
from lowtide.engine.timeline import play_timeline
from lowtide.frameworks.tensorflow.grappler.levels import LEVELS, LevelName, optimize_memory
from lowtide.frameworks.tensorflow.grappler.nodes import Hints
from tests.examples import examples
from tests.oracles.grappler_records import RECORDS, graph_of, hints_of
from tests.oracles.replay import replay
from tests.strategies import graphs, random_graph

_KINDS = ("Relu", "Mul", "Identity", "AddN", "MatMul", "Switch", "Assign")


def _renamed(graph: Graph, random: Random) -> tuple[Graph, Hints]:
    """Give a graph names and kinds that Grappler knows, gradients late, and hints."""
    late = [op > graph.n_ops // 2 and random.random() < 0.7 for op in range(graph.n_ops)]
    names = [f"{'gradients/' if is_late else ''}{name}" for name, is_late in zip(graph.op_names, late, strict=True)]
    kinds = [kind if kind in ("while", "call") else random.choice(_KINDS) for kind in graph.op_kinds]
    swap = {
        name: [random.randrange(len(reads))]
        for name, reads in zip(names, graph.reads, strict=True)
        if reads and random.random() < 0.3
    }
    hints = Hints(recompute=frozenset(name for name in names if random.random() < 0.3), swap=swap)
    return replace(graph, op_names=names, op_kinds=kinds), hints


def _check(graph: Graph, level: LevelName, hints: Hints, **options: Any) -> None:
    done = optimize_memory(graph, level, hints=hints, **options)
    verify(done.graph, done.plan, check_capacity=False)
    assert done.plan.peak_bytes == simulate(done.graph, done.plan).peak_bytes
    assert replay(done.graph, done.plan) == replay(done.graph, Plan.baseline(done.graph))
    play_timeline(done.graph, done.plan)


@examples(300)
@given(graphs(14), st.integers(0, 10**6), st.sampled_from(LEVELS))
def test_every_level_gives_a_correct_plan_on_random_graphs(graph: Graph, seed: int, level: LevelName) -> None:
    random = Random(seed)
    graph, hints = _renamed(graph, random)
    if len(graph.spaces) < 2:
        hints = replace(hints, swap={})
        level = "recomputation" if level != "manual" else level
    capacity = random.choice((None, 8, 32))
    _check(graph, level, hints, capacity_bytes=capacity, bytes_per_second=random.choice((4.0, 16e9)))


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_gives_a_correct_plan_on_large_graphs(level: LevelName) -> None:
    for seed in range(6):
        graph, hints = _renamed(random_graph(seed, 400), Random(seed))
        if len(graph.spaces) == 2:
            _check(graph, level, hints, capacity_bytes=64)


def test_every_level_gives_a_correct_plan_on_recorded_graphs() -> None:
    for record in RECORDS[::4]:
        _check(graph_of(record), "heuristics", hints_of(record), capacity_bytes=record["peak_bytes"] // 2)


def test_swaps_lower_the_peak_and_their_copies_hide_behind_compute() -> None:
    """Over all recorded graphs; on each one alone neither is certain."""
    before = after = 0
    hidden = stalled = 0.0
    for record in RECORDS:
        if record["level"] == "swapping":
            graph = graph_of(record)
            done = optimize_memory(graph, "swapping")
            before += simulate(graph, Plan.baseline(graph)).peak_bytes["gpu"]
            after += done.plan.peak_bytes["gpu"]
            timeline = play_timeline(graph, done.plan)
            hidden += timeline.hidden_seconds
            stalled += timeline.stall_seconds
    assert after < 0.95 * before
    assert stalled < 0.01 * hidden


def test_plans_are_the_same_every_time() -> None:
    for seed in range(3):
        graph, hints = _renamed(random_graph(seed + 50, 200), Random(seed))
        level: LevelName = "heuristics" if len(graph.spaces) == 2 else "recomputation"
        one, two = (optimize_memory(graph, level, hints=hints, capacity_bytes=64) for _ in range(2))
        assert list(one.plan.steps()) == list(two.plan.steps())


def test_no_level_does_nothing_to_a_graph_without_pressure_or_targets() -> None:
    graph = random_graph(1, 100)
    for level in LEVELS:
        done = optimize_memory(graph, level)
        assert done.graph is graph
        assert list(done.plan.steps()) == list(Plan.baseline(graph).steps())


def test_wrong_calls_are_refused() -> None:
    builder = GraphBuilder("one space")
    a, b = builder.add_buffer("a", 8), builder.add_buffer("b", 8)
    builder.add_op("a", "Relu", writes=[a])
    builder.add_op("b", "Relu", reads=[a], writes=[b])
    builder.add_op("c", "Relu", reads=[a, b])
    graph = builder.build()
    calls: list[tuple[dict[str, Any], str]] = [
        ({"level": "all"}, "unknown level 'all'; choose one of no, default, manual"),
        ({"scope": ""}, "the scope of recomputation targets is empty"),
        ({"bytes_per_second": 0.0}, "bandwidth to the host is 0.0"),
        ({"bytes_per_second": float("nan")}, "bandwidth to the host is nan"),
        ({"hints": Hints(recompute=frozenset({"x"}))}, "a hint names op 'x'"),
        ({"hints": Hints(swap={"b": [1]})}, "a swap hint names read 1 of op 'b', which has 1 reads"),
        ({"hints": Hints(swap={"c": [0]}), "level": "manual"}, "has no second memory space to swap to"),
    ]
    for options, message in calls:
        with pytest.raises(UsageError, match=message):
            optimize_memory(graph, **options)
