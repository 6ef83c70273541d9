"""Updates on the host in a graph: their ops, their time, and which ones run there."""

import pytest

from lowtide.engine.graph import OPERAND_TO_HOST, PARAMETER_TO_DEVICE, UPDATE_ON_HOST, Graph, GraphBuilder, Lifetime
from lowtide.engine.offload import HOST, Host, Link, with_host_space
from lowtide.engine.offload.state_in_graph import parameters_of, state_of, state_on_host
from lowtide.engine.offload.updates import balanced, find_updates
from lowtide.engine.plan import Plan, verify
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.timeline import off_device_ops

LAYERS, WEIGHT = 4, 2000
SPEED = 4000.0


def _step(last: str = "add_", *, reads_between: bool = False) -> Graph:
    """Return backward passes, and updates of weights whose moment is decayed and gets the gradient after a cast."""
    builder = GraphBuilder("step")
    x = builder.add_buffer("x", 10, Lifetime.INPUT)
    rate = builder.add_buffer("rate", 4, Lifetime.INPUT)
    out = builder.add_buffer("out", 10, Lifetime.OUTPUT)
    factor = builder.add_buffer("factor", 4)
    weights = [builder.add_buffer(f"weight{layer}", WEIGHT, Lifetime.PERSISTENT) for layer in range(LAYERS)]
    moments = [builder.add_buffer(f"moment{layer}", 2 * WEIGHT, Lifetime.PERSISTENT) for layer in range(LAYERS)]
    gradients = [builder.add_buffer(f"gradient{layer}", WEIGHT) for layer in range(LAYERS)]
    for layer, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
        builder.add_op(f"backward{layer}", "mm", reads=[x, weight], writes=[gradient])
    builder.add_op("factor", "mul", reads=[rate], writes=[factor])
    for layer, (weight, moment, gradient) in enumerate(zip(weights, moments, gradients, strict=True)):
        cast = builder.add_buffer(f"cast{layer}", 2 * WEIGHT)
        builder.add_op(f"cast{layer}", "_to_copy", reads=[gradient], writes=[cast])
        builder.add_op(f"decay{layer}", "mul_", reads=[moment, factor], mutates=[moment])
        builder.add_op(f"add{layer}", "add_", reads=[moment, cast], mutates=[moment])
        builder.add_op(f"change{layer}", last, reads=[weight, moment], mutates=[weight])
        if reads_between and layer:
            builder.add_op(f"norm{layer}", "norm", reads=[moment], writes=[builder.add_buffer(f"norm{layer}", 4)])
    builder.add_op("end", "add", reads=[x], writes=[out])
    return with_host_space(builder.build(), SPEED)


def _host(memory: float) -> Host:
    return Host(bandwidth_bytes_per_s=SPEED, memory_bytes_per_s=memory)


def test_an_update_takes_its_cast_and_repeats_small_factors() -> None:
    """The gradient crosses the link before its cast, and no update waits for the factor of the learning rate."""
    graph = _step()
    updates = find_updates(graph, state_of(graph))
    assert len(updates) == LAYERS
    names = graph.buffer_names
    assert {names[buffer] for buffer in updates[0].copied} == {"gradient0", "weight0"}
    assert [names[buffer] for buffer in updates[0].returned] == ["weight0"]
    assert [graph.op_names[op] for op in updates[0].ops] == ["cast0", "decay0", "add0", "change0"]
    assert [graph.op_names[op] for op in updates[0].again] == ["factor"]


def test_a_parameter_that_is_overwritten_does_not_leave_the_device() -> None:
    """As with master weights."""
    graph = _step("copy_")
    (first, *_) = find_updates(graph, state_of(graph))
    assert [graph.buffer_names[buffer] for buffer in first.copied] == ["gradient0"]
    assert [graph.buffer_names[buffer] for buffer in first.returned] == ["weight0"]


@pytest.mark.parametrize("step", [_step("mm"), _step(reads_between=True)], ids=["a product", "a norm of the state"])
def test_updates_that_are_not_element_wise_stay_on_the_device(step: Graph) -> None:
    assert len(find_updates(step, state_of(step))) < LAYERS


def test_an_update_takes_the_time_of_its_traffic_in_the_memory_of_the_host() -> None:
    """It reads gradient, weight and moment, and writes weight and moment."""
    moved = state_on_host(_step(), 1.0, _host(1000.0), "host")
    assert moved is not None
    verify(moved, Plan.baseline(moved), check_capacity=False)
    found = off_device_ops(moved)
    updates = [found[op] for op in range(moved.n_ops) if moved.updates_on_host[op]]
    assert {each.stream for each in updates} == {HOST}
    assert [round(each.seconds * 1000) for each in updates] == [WEIGHT * (1 + 1 + 2 + 1 + 2) + 4] * LAYERS
    copies = [found[op].seconds for op in range(moved.n_ops) if moved.copying[op]]
    assert copies == [WEIGHT / SPEED] * 3 * LAYERS


def test_prices_decide_where_each_parameter_is_updated() -> None:
    """A fast host updates all, a slow one none, and others share the work with the link."""
    graph = _step("copy_")
    updates = find_updates(graph, state_of(graph))
    link = Link(device=0, host=1, out_bytes_per_s=SPEED, back_bytes_per_s=SPEED)
    numbers = [len(balanced(graph, updates, link, speed)) for speed in (1.0, 2 * SPEED, 1e3 * SPEED)]
    assert numbers[0] == 0 < numbers[1] < numbers[2] == LAYERS


def test_updates_overlap_with_other_updates_and_backward_passes() -> None:
    """The device, the host and each direction of the link work at the same time."""
    moved = state_on_host(_step("copy_"), 1.0, _host(SPEED), "host")
    assert moved is not None
    result = find_plan(moved, PlanSettings(budget=10**6, transient=True, addresses=False))
    one_by_one = result.base_cost + sum(each.seconds for each in off_device_ops(moved).values())
    assert result.base_cost + result.extra_cost < 0.8 * one_by_one


def test_parameters_on_the_host_are_updated_in_place() -> None:
    """Only gradients leave the device, and nothing returns."""
    graph = _step()
    (first, *_) = find_updates(graph, state_of(graph), parameters_of(graph))
    assert [graph.buffer_names[buffer] for buffer in first.state] == ["weight0", "moment0"]
    assert [graph.buffer_names[buffer] for buffer in first.copied] == ["gradient0"]
    assert not first.returned
    moved = state_on_host(graph, 2.0, _host(1000.0), "host")
    assert moved is not None
    verify(moved, Plan.baseline(moved), check_capacity=False)
    kinds = [kind for kind in moved.op_kinds if kind.startswith("lowtide")]
    assert kinds.count(OPERAND_TO_HOST) == kinds.count(UPDATE_ON_HOST) == LAYERS
    assert PARAMETER_TO_DEVICE not in kinds
