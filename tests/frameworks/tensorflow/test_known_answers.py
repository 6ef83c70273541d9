"""Node for node with the Grappler that TensorFlow brings, on the graphs whose answers its own tests state."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any

import pytest

from lowtide.tensorflow import optimize

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="there is no package tensorflow"),
    pytest.mark.filterwarnings("ignore"),  # TensorFlow's own
]
GPU = "/device:GPU:0"
LARGE = 2**17
"""As many floats as half a mebibyte holds."""


def _attribute(graph: Any, node: str, name: str) -> None:
    from tensorflow.core.framework import attr_value_pb2

    graph.get_operation_by_name(node)._set_attr(name, attr_value_pb2.AttrValue(i=0))


def _variable(tf: Any, name: str, *shape: int) -> Any:
    return tf.compat.v1.get_variable(name, shape, use_resource=False, initializer=tf.zeros_initializer())


def _chain(tf: Any) -> None:
    """Make a chain of six, of which one is hinted."""
    a = tf.compat.v1.placeholder(tf.float32, (LARGE,), name="a")
    b = tf.identity(a, "b")
    d = tf.raw_ops.AddN(inputs=[tf.identity(b, "c")], name="gradients/d")
    e = tf.raw_ops.AddN(inputs=[d, b], name="gradients/e")
    tf.raw_ops.AddN(inputs=[e, a], name="gradients/f")
    _attribute(tf.compat.v1.get_default_graph(), "b", "_recompute_hint")


def _layers(tf: Any, scope: str = "", hints: int = 0) -> None:
    """Make ten layers of convolution, batch norm and ReLU, with gradients in a scope, and some ReLUs hinted."""
    x = tf.compat.v1.placeholder(tf.float32, (2, 8, 8, 4), name="image")
    for k in range(10):
        made = tf.nn.conv2d(x, _variable(tf, f"w{k}", 3, 3, 4, 4), 1, "SAME")
        scale, offset = _variable(tf, f"scale{k}", 4), _variable(tf, f"offset{k}", 4)
        x = tf.nn.relu(tf.compat.v1.nn.fused_batch_norm(made, scale, offset)[0], name=f"relu{k}")
    loss = tf.reduce_mean(x)
    with tf.name_scope(scope) if scope else nullcontext():
        tf.gradients(loss, tf.compat.v1.trainable_variables())
    for k in range(hints):
        _attribute(tf.compat.v1.get_default_graph(), f"relu{k}", "_recompute_hint")


def _swapped(tf: Any) -> None:
    """Make a sum of which one input is hinted to come back from the host."""
    a = tf.square(_variable(tf, "v", LARGE), "a")
    f = tf.exp(tf.sqrt(tf.sqrt(tf.square(a, "b"), "c"), "d"), "f")
    tf.raw_ops.AddN(inputs=[a, f], name="e")
    _attribute(tf.compat.v1.get_default_graph(), "e", "_swap_to_host")


def _concatenated(tf: Any) -> None:
    """Make a concatenation of four values on a device that holds two of them; one is a variable by another name."""
    v = _variable(tf, "v", LARGE)
    a, b = tf.identity(v, "a"), tf.square(v, "b")
    c, d = tf.sqrt(a, "c"), tf.identity(b, "d")
    tf.square(a, "f")
    tf.sqrt(b, "g")
    tf.exp(c, "h")
    tf.concat([a, b, c, d], 0, name="e")
    tf.math.log(d, "i")


def _rows(nodes: Iterable[tuple[str, str, Iterable[str]]]) -> dict[str, tuple[str, list[str], list[str]]]:
    """Return op, values and waits by name; waits have no order."""
    return {
        name: (op, [text for text in inputs if text[0] != "^"], sorted(text for text in inputs if text[0] == "^"))
        for name, op, inputs in ((name, op, list(inputs)) for name, op, inputs in nodes)
    }


@pytest.mark.parametrize(
    ("make", "level", "scope", "capacity", "more"),
    [
        (_chain, "manual", "gradients/", None, 2),
        (_layers, "recomputation", "gradients/", None, 20),
        (lambda tf: _layers(tf, "optimizer"), "recomputation", "gradients/", None, 20),
        (_layers, "recomputation", "elsewhere/", None, 0),
        (lambda tf: _layers(tf, hints=9), "manual", "gradients/", None, 18),
        (_swapped, "manual", "gradients/", None, 2),
        (_concatenated, "swapping", "gradients/", 2**20, 6),
    ],
)
def test_the_original_level_makes_the_nodes_that_grappler_makes(
    make: Callable[[Any], None], level: str, scope: str, capacity: int | None, more: int
) -> None:
    import tensorflow as tf
    from tensorflow.python.grappler import item as items

    from tests.oracles.record_grappler import HUGE, cluster_of, meta_of
    from tests.oracles.record_grappler import optimize as grappler

    graph = tf.Graph()
    with graph.as_default(), tf.device(GPU):
        make(tf)
    meta = meta_of(graph)
    size = capacity or HUGE
    theirs = _rows(
        (node.name, node.op, node.input) for node in grappler(meta, level, scope, cluster_of(size, "GPU")).node
    )
    costs = cluster_of(HUGE, "GPU").MeasureCosts(items.Item(meta))[0]
    seconds = {cost.node: cost.compute_cost * 1e-9 for cost in costs}
    message: Any = graph.as_graph_def(add_shapes=True)
    done = optimize(message, f"original:{level}", scope=scope, devices={"/gpu:0": size}, seconds=seconds)
    assert _rows((node.name, node.op, node.input) for node in done.graph.node) == theirs
    assert len(theirs) == len(message.node) + more
