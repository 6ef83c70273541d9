"""Graphs with swaps run without a GPU: a second CPU stands in for the host."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from lowtide.frameworks.tensorflow.measure import equal_values, made_up_variables
from lowtide.tensorflow import GraphDef, optimize, run_graph, with_host_stand_ins

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="there is no package tensorflow"),
    pytest.mark.filterwarnings("ignore"),  # TensorFlow's own
]


def _training_graph() -> tuple[GraphDef, list[str]]:
    """Return layers whose gradients need every activation, on a GPU that is not there, and what is asked for."""
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default(), tf.device("/device:GPU:0"):
        x = tf.compat.v1.placeholder(tf.float32, (64, 64), name="x")
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
    assert equal_values(before.values, after.values)
    assert sorted(after.on_host) == sorted(f"swap_out_{node}_{number}" for node, number in done.swapped)


def test_only_copies_that_tensorflow_lacks_have_a_stand_in() -> None:
    graph, fetches = _training_graph()
    seconds = {node.name: 5e-3 for node in graph.nodes}
    swapped = optimize(graph, "swapping", devices={"/gpu:0": "200 KiB"}, fetches=fetches, seconds=seconds).graph
    assert with_host_stand_ins(swapped, ()) is swapped
    assert with_host_stand_ins(graph) is graph
    kinds = {node.name: node.op for node in with_host_stand_ins(swapped).nodes}
    assert {kinds[name] for name in kinds if name.startswith("swap_")} == {"DeepCopy"}
