"""State and parameters of a graph on its host: only on the device around their uses, copied while other ops run."""

import pytest

from lowtide.engine.analysis import simulate
from lowtide.engine.graph import PARAMETER_FROM_HOST, STATE_TO_DEVICE, STATE_TO_HOST, Graph, GraphBuilder, Lifetime
from lowtide.engine.offload import HOST, Host, with_host_space
from lowtide.engine.offload.state_in_graph import parameters_of, state_of, state_on_host
from lowtide.engine.plan import Plan, verify
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.timeline import off_device_ops, play_timeline

LAYERS, WEIGHT = 4, 2000
HOST_OF_TEST = Host(bandwidth_bytes_per_s=4000.0)


def _training_step(bytes_per_second: float = 4000.0) -> Graph:
    """Return layers of 1 s forward and 1 s backward, and updates whose moment takes 1 s to copy each way."""
    builder = GraphBuilder("step")
    value = builder.add_buffer("x", 10, Lifetime.INPUT)
    weights = [builder.add_buffer(f"weight{layer}", WEIGHT, Lifetime.PERSISTENT) for layer in range(LAYERS)]
    moments = [builder.add_buffer(f"moment{layer}", 2 * WEIGHT, Lifetime.PERSISTENT) for layer in range(LAYERS)]
    values = [value]
    for layer, weight in enumerate(weights):
        values.append(builder.add_buffer(f"value{layer}", 10))
        builder.add_op(f"forward{layer}", "mm", reads=[values[-2], weight], writes=[values[-1]])
    for layer in reversed(range(LAYERS)):
        gradient = builder.add_buffer(f"gradient{layer}", WEIGHT)
        builder.add_op(f"backward{layer}", "mm", reads=[values[layer], values[-1], weights[layer]], writes=[gradient])
        updated = [weights[layer], moments[layer]]
        builder.add_op(f"update{layer}", "adam", reads=[gradient, *updated], mutates=updated, cost=0.0)
    return with_host_space(builder.build(), bytes_per_second)


def test_state_is_what_an_update_uses_first() -> None:
    graph = _training_step()
    assert [graph.buffer_names[buffer] for buffer in state_of(graph)] == [f"moment{layer}" for layer in range(LAYERS)]


def test_the_host_holds_the_state_and_the_device_one_moment_at_a_time() -> None:
    graph = _training_step()
    moved = state_on_host(graph, 1.0, HOST_OF_TEST)
    assert moved is not None
    assert moved.persistent_bytes() == {"device": LAYERS * WEIGHT, HOST: LAYERS * 2 * WEIGHT}
    plan = Plan.baseline(moved)
    verify(moved, plan, check_capacity=False)
    before = simulate(graph, Plan.baseline(graph)).peak_bytes["device"]
    assert before < simulate(moved, plan).peak_bytes["device"] <= before + 2 * WEIGHT
    assert len(off_device_ops(moved)) == 2 * LAYERS
    assert {copy.seconds for copy in off_device_ops(moved).values()} == {1.0}


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_a_share_moves_at_least_that_many_bytes(share: float) -> None:
    moved = state_on_host(_training_step(), share, HOST_OF_TEST)
    assert moved is not None
    assert moved.persistent_bytes()[HOST] >= share * LAYERS * 2 * WEIGHT
    assert state_on_host(_training_step(0.0), share, HOST_OF_TEST) is None


def test_copies_overlap_with_other_ops_where_memory_allows() -> None:
    """Without room, each update waits for its copy; with room for a second moment, copies start during earlier ops."""
    moved = state_on_host(_training_step(), 1.0, HOST_OF_TEST)
    assert moved is not None
    least = simulate(moved, Plan.baseline(moved)).peak_bytes["device"]
    extra: list[float] = []
    for budget in (least, least + 3 * 2 * WEIGHT):
        result = find_plan(moved, PlanSettings(budget=budget, transient=True, addresses=False))
        assert result.shortfall is None
        assert result.extra_cost == play_timeline(moved, result.plan).extra_seconds
        extra.append(result.extra_cost)
    assert 0 < extra[1] < extra[0]


def test_reports_count_state_copies_apart_from_offload() -> None:
    moved = state_on_host(_training_step(), 1.0, HOST_OF_TEST)
    assert moved is not None
    transfers = find_plan(moved, PlanSettings(addresses=False)).transfers
    assert (transfers.bytes_out, transfers.state_bytes_out) == (0, LAYERS * 2 * WEIGHT)


def test_parameters_are_the_other_persistent_buffers() -> None:
    graph = _training_step()
    names = [graph.buffer_names[buffer] for buffer in parameters_of(graph)]
    assert names == [f"weight{layer}" for layer in range(LAYERS)]


def test_parameters_are_copied_for_both_passes_and_once_more_for_the_update() -> None:
    moved = state_on_host(_training_step(), 2.0, HOST_OF_TEST)
    assert moved is not None
    assert moved.persistent_bytes() == {"device": 0, HOST: 3 * LAYERS * WEIGHT}
    verify(moved, Plan.baseline(moved), check_capacity=False)
    kinds = [kind for kind in moved.op_kinds if kind.startswith("lowtide")]
    assert kinds.count(PARAMETER_FROM_HOST) == LAYERS
    assert kinds.count(STATE_TO_DEVICE) == kinds.count(STATE_TO_HOST) == 2 * LAYERS
    assert [kind for kind, pure in zip(moved.op_kinds, moved.pure, strict=True) if pure and "." in kind] == [
        PARAMETER_FROM_HOST
    ] * LAYERS


def test_half_of_the_parameters_move_after_all_state() -> None:
    moved = state_on_host(_training_step(), 1.5, HOST_OF_TEST)
    assert moved is not None
    assert moved.persistent_bytes() == {"device": LAYERS * WEIGHT // 2, HOST: (2 * LAYERS + LAYERS // 2) * WEIGHT}


@pytest.mark.parametrize("copies", [1, 2])
def test_recomputation_copies_a_parameter_again_instead_of_keeping_it(copies: int) -> None:
    """With recomputation, fewer parameters are on the device together than the layers have."""
    moved = state_on_host(_training_step(), 2.0, HOST_OF_TEST)
    assert moved is not None
    budget = (LAYERS if copies == 2 else LAYERS + 3) * WEIGHT + 100
    techniques = frozenset({"reorder", "share", *(["recompute"] if copies == 2 else [])})
    result = find_plan(moved, PlanSettings(budget=budget, transient=True, techniques=techniques, addresses=False))
    assert result.shortfall is None
    assert result.reruns == 0
    order = result.plan.order().tolist()
    assert max(order.count(op) for op in range(moved.n_ops)) == copies


def _inference(*, ordered: bool) -> Graph:
    """Return layers of 1 s, whose weights and values have equal sizes. A copy of a weight takes 2 s.

    If `ordered`, layers begin with an op that keeps its place among others, and a copy takes 0.5 s.
    """
    builder = GraphBuilder("inference")
    value = builder.add_buffer("x", WEIGHT, Lifetime.INPUT)
    for layer in range(LAYERS):
        weight = builder.add_buffer(f"weight{layer}", WEIGHT, Lifetime.PERSISTENT)
        if ordered:
            sent = builder.add_buffer(f"sent{layer}", WEIGHT)
            builder.add_op(f"send{layer}", "send", reads=[value], writes=[sent], ordered=True, cost=1.0)
            value = sent
        lifetime = Lifetime.OUTPUT if layer == LAYERS - 1 else Lifetime.INTERMEDIATE
        made = builder.add_buffer(f"value{layer}", WEIGHT, lifetime)
        builder.add_op(f"layer{layer}", "mm", reads=[value, weight], writes=[made], cost=0.0 if ordered else 1.0)
        value = made
    return with_host_space(builder.build(), 4000.0 if ordered else 1000.0)


@pytest.mark.parametrize(("ordered", "waits"), [(False, 5.0), (True, 0.0)], ids=["behind frees", "before ordered ops"])
def test_weights_arrive_while_earlier_layers_compute(*, ordered: bool, waits: float) -> None:
    """In the room of two weights, the copies follow one another without a gap."""
    moved = state_on_host(_inference(ordered=ordered), 2.0, HOST_OF_TEST)
    assert moved is not None
    techniques = frozenset({"reorder", "share"})
    result = find_plan(moved, PlanSettings(budget=5 * WEIGHT, transient=True, techniques=techniques, in_place=False))
    assert result.shortfall is None
    assert result.extra_cost == pytest.approx(waits)
