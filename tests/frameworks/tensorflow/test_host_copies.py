"""Graphs with swaps run without a GPU: a second CPU stands in for the host."""

from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import lowtide
from lowtide.core.errors import UsageError
from lowtide.engine.offload import Host
from lowtide.frameworks.outputs import largest_difference
from lowtide.frameworks.tensorflow.measure import made_up_variables
from lowtide.tensorflow import GraphDef, TensorflowModel, optimize, run_graph, with_host_stand_ins

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="there is no package tensorflow"),
    pytest.mark.filterwarnings("ignore"),  # TensorFlow's own
]


@cache
def _training_graph(rows: int = 64) -> tuple[GraphDef, list[str]]:
    """Return layers whose gradients need every activation, on a GPU that is not there, and what is asked for.

    With more than 64 rows, activations are larger than weights and their gradients.
    """
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default(), tf.device("/device:GPU:0"):
        x = tf.compat.v1.placeholder(tf.float32, (rows, 64), name="x")
        for k in range(8):
            x = tf.tanh(tf.matmul(x, tf.compat.v1.get_variable(f"w{k}", (64, 64))))
        loss = tf.reduce_mean(tf.square(x))
        gradients = tf.gradients(loss, tf.compat.v1.trainable_variables())
    message: Any = graph.as_graph_def(add_shapes=True)
    return GraphDef.parse(message.SerializeToString()), [loss.name, *(each.name for each in gradients)]


@pytest.mark.parametrize("level", ["swapping", "original:swapping"])
def test_swapped_values_come_back_from_the_stand_in_with_equal_bits(level: str) -> None:
    graph, fetches = _training_graph()
    seconds = {node.name: 5e-3 for node in graph.nodes}
    done = optimize(graph, level, devices={"/gpu:0": "200 KiB"}, fetches=fetches, seconds=seconds)
    assert len(done.swapped) >= 3
    feeds = {"x:0": np.random.default_rng(0).random((64, 64)).astype(np.float32)}
    variables = made_up_variables(graph)
    before, after = (run_graph(each, feeds, fetches, variables) for each in (graph, done.graph))
    assert largest_difference(before.values, after.values) == 0
    assert sorted(after.on_host) == sorted(f"swap_out_{node}_{number}" for node, number in done.swapped)


def test_only_copies_that_tensorflow_lacks_have_a_stand_in() -> None:
    graph, fetches = _training_graph()
    seconds = {node.name: 5e-3 for node in graph.nodes}
    swapped = optimize(graph, "swapping", devices={"/gpu:0": "200 KiB"}, fetches=fetches, seconds=seconds).graph
    assert with_host_stand_ins(swapped, ()) is swapped
    assert with_host_stand_ins(graph) is graph
    kinds = {node.name: node.op for node in with_host_stand_ins(swapped).nodes}
    assert {kinds[name] for name in kinds if name.startswith("swap_")} == {"DeepCopy"}


@pytest.mark.parametrize("techniques", [["offload"], ["reorder", "share", "recompute", "offload"]])
def test_a_plan_that_copies_to_a_host_needs_on_the_device_and_the_host_what_was_predicted(
    techniques: list[str],
) -> None:
    graph, fetches = _training_graph(512)
    model = TensorflowModel(graph, fetches=fetches).with_host(Host(bandwidth_bytes_per_s=16e9))
    result = lowtide.minimize(model.graph, budget="60%", allow=techniques)
    assert result.transfers.bytes_out > 0
    measured = model.measure(result.plan)
    assert measured.outputs_equal
    device = sum(result.peak_bytes.values()) - result.peak_bytes["host"]
    assert abs(measured.after_bytes - device) <= 64  # constants of a few bytes come and go
    assert measured.host_bytes == result.peak_bytes["host"]
    assert measured.after_bytes < measured.before_bytes


def test_a_budget_with_a_host_is_met_by_swaps_with_equal_bits() -> None:
    graph, fetches = _training_graph(512)
    done = optimize(graph, budget="60%", fetches=fetches, host=Host(bandwidth_bytes_per_s=1e15))
    kinds = {node.name: node.op for node in done.graph.nodes}
    sources = {(node.name, number): text for node in done.graph.nodes for number, text in enumerate(node.inputs)}
    assert done.swapped
    assert {kinds[sources[each]] for each in done.swapped} == {"_CopyFromHostToGpu"}
    feeds = {"x:0": np.random.default_rng(0).random((512, 64)).astype(np.float32)}
    variables = made_up_variables(graph)
    before, after = (run_graph(each, feeds, fetches, variables) for each in (graph, done.graph))
    assert largest_difference(before.values, after.values) == 0
    assert after.peak_bytes < before.peak_bytes
    with pytest.raises(UsageError, match="a host needs a budget"):
        optimize(graph, "swapping", host=Host(bandwidth_bytes_per_s=1e9))


def test_levels_that_swap_lower_what_the_device_holds_in_a_real_run() -> None:
    graph, fetches = _training_graph(512)
    seconds = {node.name: 5e-3 for node in graph.nodes}
    done = optimize(graph, "swapping", devices={"/gpu:0": "1 MiB"}, fetches=fetches, seconds=seconds)
    feeds = {"x:0": np.random.default_rng(0).random((512, 64)).astype(np.float32)}
    variables = made_up_variables(graph)
    before, after = (run_graph(each, feeds, fetches, variables) for each in (graph, done.graph))
    assert after.host_bytes > 0
    assert after.peak_bytes < 0.8 * before.peak_bytes
