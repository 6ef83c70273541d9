"""Overlap of collectives with computation: never slower, within the allowed memory, and with the same runs."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowtide
from lowtide.engine.analysis import simulate
from lowtide.engine.costs import given_prices
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.overlap import communication_of, hide_collectives
from lowtide.engine.plan import Plan, verify
from lowtide.engine.timeline import play_timeline
from tests.examples import examples
from tests.strategies import graphs, rematerializing_plan

GATHERED, SHARD, VALUE = 80, 20, 10
COLLECTIVE: dict[str, Any] = {"ranks": 4, "rank_span": 4, "ordered": True}


def _seconds(graph: Graph, plan: Plan) -> float:
    return play_timeline(graph, plan, collectives_apart=True).seconds


def _layers(count: int) -> Graph:
    """Return layers of 2 s, with weights that take 1 s to gather from shards."""
    builder = GraphBuilder("gathered layers")
    shards = [builder.add_buffer(f"shard{layer}", SHARD, Lifetime.INPUT) for layer in range(count)]
    value = builder.add_buffer("value", VALUE, Lifetime.INPUT)
    for layer, shard in enumerate(shards):
        weight = builder.add_buffer(f"weight{layer}", GATHERED)
        builder.add_op(
            f"gather{layer}", "all_gather", reads=[shard], writes=[weight], ranks=4, rank_span=4, ordered=True
        )
        given, value = value, builder.add_buffer(f"value{layer}", VALUE)
        builder.add_op(f"layer{layer}", "mm", reads=[given, weight], writes=[value], cost=2.0)
    builder.set_lifetime(value, Lifetime.OUTPUT)
    return builder.build()


@examples(100)
@given(graphs(12), st.integers(0, 10**6), st.integers(0, 300))
def test_a_plan_is_never_slower_stays_within_memory_and_runs_the_same(graph: Graph, seed: int, more: int) -> None:
    plan = rematerializing_plan(graph, Random(seed))
    allowed = {space: peak + more for space, peak in simulate(graph, plan).peak_bytes.items()}
    hidden = hide_collectives(graph, plan, given_prices(graph), allowed)
    verify(graph, hidden, check_capacity=False)
    assert all(peak <= allowed[space] for space, peak in simulate(graph, hidden).peak_bytes.items())
    assert _seconds(graph, hidden) <= _seconds(graph, plan)
    assert sorted(hidden.order().tolist()) == sorted(plan.order().tolist())
    ordered = graph.ordered
    assert [op for op in hidden.order() if ordered[op]] == [op for op in plan.order() if ordered[op]]


def test_steps_that_wait_for_a_collective_are_postponed() -> None:
    """A gradient is scattered while the layer before computes. Only its update waits for it."""
    builder = GraphBuilder("an update")
    value, gradient, part, weight, result = (
        builder.add_buffer(name, size) for name, size in zip("vgpwr", (VALUE, 80, 20, 20, VALUE), strict=True)
    )
    builder.add_op("backward", "mm", writes=[value, gradient], cost=2.0)
    builder.add_op("scatter", "reduce_scatter", reads=[gradient], writes=[part], **COLLECTIVE)
    builder.add_op("update", "add", reads=[part], writes=[weight], cost=0.5)
    builder.add_op("next", "mm", reads=[value], writes=[result], cost=2.0)
    for buffer in (weight, result):
        builder.set_lifetime(buffer, Lifetime.OUTPUT)
    graph = builder.build()
    plan = Plan.baseline(graph)
    hidden = hide_collectives(graph, plan, given_prices(graph), {"device": 1000})
    verify(graph, hidden, check_capacity=False)
    assert [graph.op_names[op] for op in hidden.order()] == ["backward", "scatter", "next", "update"]
    assert _seconds(graph, hidden) == 4.5
    tight = hide_collectives(graph, plan, given_prices(graph), simulate(graph, plan).peak_bytes)
    assert simulate(graph, tight).peak_bytes == simulate(graph, plan).peak_bytes


@pytest.mark.parametrize(("room", "exposed"), [(0, 4.0), (GATHERED, 1.0)])
def test_a_weight_is_gathered_during_the_layer_before_if_it_has_room(room: int, exposed: float) -> None:
    """Only the first gather cannot hide."""
    graph = _layers(4)
    plan = Plan.baseline(graph)
    allowed = {space: peak + room for space, peak in simulate(graph, plan).peak_bytes.items()}
    prices = given_prices(graph)
    assert communication_of(graph, plan, prices).exposed_seconds == 4.0
    hidden = hide_collectives(graph, plan, prices, allowed)
    assert communication_of(graph, hidden, prices).exposed_seconds == exposed
    assert (hidden is plan) == (room == 0)


def test_a_scattered_gradient_is_freed_once_it_is_sent() -> None:
    """An early free would make computation wait a second for the scatter."""
    builder = GraphBuilder("scattered gradient")
    value, gradient, part, result = (
        builder.add_buffer(name, size) for name, size in zip(("v", "g", "p", "r"), (VALUE, 80, 20, VALUE), strict=True)
    )
    builder.add_op("backward", "mm", writes=[value, gradient], cost=2.0)
    builder.add_op("scatter", "reduce_scatter", reads=[gradient], writes=[part], **COLLECTIVE)
    builder.add_op("next", "mm", reads=[value], writes=[result], cost=2.0)
    for buffer in (part, result):
        builder.set_lifetime(buffer, Lifetime.OUTPUT)
    graph = builder.build()
    prices = given_prices(graph)
    for most, exposed in ((110, 1.0), (120, 0.0)):
        hidden = hide_collectives(graph, Plan.baseline(graph), prices, {graph.spaces[0].name: most})
        assert communication_of(graph, hidden, prices).exposed_seconds == exposed


def test_planning_hides_collectives_in_the_free_budget_and_reports_the_time() -> None:
    graph = _layers(4)
    peak = lowtide.minimize(graph).peak_bytes["device"]
    asked = {"budget": f"{peak + GATHERED} B", "allow": ["reorder", "recompute"]}
    found = [lowtide.minimize(graph), lowtide.minimize(graph, **asked)]
    assert [result.communication.seconds for result in found] == [4.0, 4.0]
    assert [result.communication.exposed_seconds for result in found] == [4.0, 1.0]
    assert all(result.extra_cost == 0 for result in found)
