"""TensorFlow runs rewritten graphs to the same values, and needs what was predicted."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lowtide
from lowtide.core.errors import UsageError
from lowtide.frameworks.outputs import largest_difference
from lowtide.frameworks.tensorflow.measure import made_up_variables
from lowtide.tensorflow import GraphDef, TensorflowModel, optimize, run_graph

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="there is no package tensorflow"),
    pytest.mark.filterwarnings("ignore"),  # TensorFlow's own
]


@cache
def _training_graph(resource: bool) -> tuple[GraphDef, tuple[str, ...]]:
    """Return a perceptron with its gradients in TensorFlow 1, and what is asked for."""
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, (64, 32), name="x")
        for k, activation in enumerate((tf.nn.relu, tf.tanh, tf.sigmoid)):
            weight = tf.compat.v1.get_variable(f"w{k}", (32, 32), use_resource=resource)
            x = activation(tf.matmul(x, weight)) * 0.5
        loss = tf.reduce_mean(tf.square(x), name="loss")
        gradients = tf.gradients(loss, tf.compat.v1.trainable_variables())
    fetches = (loss.name, *(tf.convert_to_tensor(each).name for each in gradients))
    return _read(graph.as_graph_def(add_shapes=True)), fetches


def _read(message: Any) -> GraphDef:
    return GraphDef.parse(message.SerializeToString())


@pytest.mark.parametrize("resource", [False, True])
def test_every_rewrite_gives_the_same_values_and_gradients_bit_for_bit(resource: bool) -> None:
    graph, fetches = _training_graph(resource)
    feeds = {"x:0": np.random.default_rng(0).random((64, 32)).astype(np.float32)}
    variables = made_up_variables(graph)
    expected = run_graph(graph, feeds, fetches, variables).values
    model = TensorflowModel(graph, fetches=fetches)
    rewritten = [
        optimize(graph, "recomputation", fetches=fetches),
        optimize(graph, "original:recomputation", fetches=fetches),
        optimize(graph, budget="75%", fetches=fetches),
    ]
    graphs = [each.graph for each in rewritten] + [model.apply(lowtide.minimize(model.graph).plan)]
    assert all(each.recomputed for each in rewritten)
    for made in graphs:
        assert largest_difference(run_graph(made, feeds, fetches, variables).values, expected) == 0


def test_rewritten_graphs_give_the_values_of_the_unmodified_one_with_grappler_on_as_well() -> None:
    """Grappler may round otherwise than no optimizer does, so that each is compared with its like."""
    graph, fetches = _training_graph(True)
    feeds = {"x:0": np.random.default_rng(0).random((64, 32)).astype(np.float32)}
    variables = made_up_variables(graph)
    model = TensorflowModel(graph, fetches=fetches)
    graphs = [optimize(graph, "recomputation", fetches=fetches).graph, model.apply(lowtide.minimize(model.graph).plan)]
    graphs.append(optimize(graph, budget="75%", fetches=fetches).graph)
    for on in (False, True):
        expected = run_graph(graph, feeds, fetches, variables, with_grappler=on).values
        for made in graphs:
            assert (
                largest_difference(run_graph(made, feeds, fetches, variables, with_grappler=on).values, expected) == 0
            )


def test_a_function_whose_variables_are_gone_is_refused_in_one_line() -> None:
    import tensorflow as tf

    def traced() -> Any:
        weight = tf.Variable([1.0])
        return tf.function(lambda x: x * weight).get_concrete_function(tf.TensorSpec([1]))

    with pytest.raises(UsageError, match="variables that were deleted; keep the model"):
        TensorflowModel(traced())


@pytest.mark.parametrize("resource", [False, True])
def test_measured_peaks_are_the_predicted_ones_with_what_runs_again(resource: bool) -> None:
    graph, fetches = _training_graph(resource)
    model = TensorflowModel(graph, fetches=fetches)
    result = lowtide.minimize(model.graph, budget="75%", allow=["reorder", "share", "recompute"])
    measured = model.measure(result.plan)
    assert result.extra_cost > 0
    assert measured.outputs_equal
    assert measured.after_bytes == sum(result.peak_bytes.values())
    assert measured.after_bytes < measured.before_bytes


def test_a_plan_holds_the_real_run_to_its_order() -> None:
    graph, fetches = _training_graph(False)
    model = TensorflowModel(graph, fetches=fetches)
    plan = lowtide.minimize(model.graph).plan
    feeds = {"x:0": np.zeros((64, 32), np.float32)}
    ran = run_graph(model.apply(plan), feeds, fetches, made_up_variables(graph)).order
    ops = [model.graph.op_names[op] for op in plan.order().tolist()]
    assert [name for name in ran if name in set(ops)] == ops


def test_shapes_are_inferred_where_a_graph_does_not_record_them() -> None:
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, (None, 8), name="x")
        tf.nn.relu(tf.concat([x, x], 0), name="y")
    bare = TensorflowModel(_read(graph.as_graph_def()), {"x.0": 4}).graph
    assert bare.sizes[bare.exists_at_end.nonzero()[0]].max() == 2 * 4 * 8 * 4
    assert lowtide.read(graph, dims={"x.0": 4}).fingerprint == bare.fingerprint


def test_a_function_with_branches_and_a_loop_reads_and_runs_after_planning() -> None:
    import tensorflow as tf

    @tf.function
    def function(x: Any) -> Any:
        _, y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.tanh(tf.matmul(y, x))), [tf.constant(0), x])
        return tf.cond(tf.reduce_sum(y) > 0, lambda: tf.nn.relu(y) + 1.0, lambda: y) + tf.exp(x)

    concrete = function.get_concrete_function(tf.TensorSpec([16, 16]))
    model = lowtide.open_model(concrete)
    assert model.graph.subgraphs
    planned = model.apply(lowtide.minimize(model.graph).plan)
    x = np.random.default_rng(0).random((16, 16)).astype(np.float32)
    outputs = [tensor.name for tensor in concrete.outputs]
    ran = run_graph(_read(planned), {concrete.inputs[0].name: x}, outputs)
    np.testing.assert_array_equal(ran.values[0], concrete(tf.constant(x)).numpy())


def test_a_planned_function_is_called_like_a_function() -> None:
    import tensorflow as tf

    @tf.function
    def function(x: Any) -> Any:
        return tf.reduce_sum(tf.concat([x] * 8, 0)) + tf.reduce_sum(tf.concat([x + 1.0] * 8, 0))

    concrete = function.get_concrete_function(tf.TensorSpec([16, 16]))
    model = lowtide.open_model(concrete)
    planned = model.apply(lowtide.minimize(model.graph).plan)
    wrapped = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(planned, name=""), [])
    pruned = wrapped.prune([tensor.name for tensor in concrete.inputs], [concrete.outputs[0].name])
    x = tf.constant(np.random.default_rng(0).random((16, 16)).astype(np.float32))
    assert pruned(x)[0].numpy().tobytes() == concrete(x).numpy().tobytes()


def test_a_saved_model_goes_in_and_comes_out(tmp_path: Path) -> None:
    import shutil

    import tensorflow as tf

    class Dense(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = tf.Variable(np.random.default_rng(0).random((8, 8)).astype(np.float32))

        @tf.function(input_signature=[tf.TensorSpec([4, 8])])
        def __call__(self, x: Any) -> Any:
            return tf.nn.relu(tf.matmul(x, self.weight)) + x

    module = Dense()
    tf.saved_model.save(module, str(tmp_path / "in"), signatures=module.__call__)
    model = lowtide.open_model(tmp_path / "in")
    assert model.graph.persistent_bytes() == {"/cpu:0": 8 * 8 * 4}
    shutil.copytree(tmp_path / "in", tmp_path / "out")
    model.save(lowtide.minimize(model.graph).plan, tmp_path / "out" / "saved_model.pb")
    x = np.ones((4, 8), np.float32)
    ran = [
        tf.saved_model.load(str(tmp_path / name)).signatures["serving_default"](tf.constant(x))
        for name in ("in", "out")
    ]
    assert [value.numpy().tobytes() for value in ran[0].values()] == [
        value.numpy().tobytes() for value in ran[1].values()
    ]


def test_texts_are_those_of_tensorflow(tmp_path: Path) -> None:
    from google.protobuf import text_format
    from tensorflow.core.framework import full_type_pb2, graph_pb2, types_pb2

    from lowtide.frameworks.tensorflow.graphs.messages import GraphMessage, from_text, to_text

    graph, _ = _training_graph(True)
    message = graph_pb2.GraphDef.FromString(graph.SerializeToString())
    text = text_format.MessageToString(message).encode()
    assert graph_pb2.GraphDef.FromString(from_text(text, "a")) == message
    assert text_format.Parse(to_text(graph.SerializeToString(), "a"), graph_pb2.GraphDef()) == message
    types = dict(types_pb2.DataType.items())
    assert types.items() <= GraphMessage.ENUMS["data_type"].items()
    known = dict(full_type_pb2.FullTypeId.items())
    assert GraphMessage.ENUMS["full_type"].items() <= known.items()


def test_random_numbers_without_a_seed_are_no_difference_between_runs() -> None:
    """Initializers and dropout draw other numbers in every session; a measurement compares what is computed of them."""
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, (16,), name="x")
        called = tf.function(lambda x: x * tf.random.normal((16,)))
        sides = [tf.reduce_sum(tf.concat([called(x) + tf.random.uniform((16,))] * 4, 0)) for _ in range(3)]
        tf.add_n(sides, name="y")
    model = TensorflowModel(graph)
    assert model.measure(lowtide.minimize(model.graph).plan).outputs_equal
