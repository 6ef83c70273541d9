"""Plans reach into functions: bodies of loops, branches and calls are put in order, and compute the same."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lowtide
from lowtide.frameworks.outputs import largest_difference
from lowtide.tensorflow import GraphDef, TensorflowModel, run_graph

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="there is no package tensorflow"),
    pytest.mark.filterwarnings("ignore"),  # TensorFlow's own
]


@cache
def _nested() -> Any:
    """Return a function with a loop, a branch and a call, each with four wide values that are summed one by one."""
    import tensorflow as tf

    def wide(y: Any) -> Any:
        sides = [tf.concat([y + float(k)] * 8, 0) for k in range(4)]
        return tf.add_n([tf.reduce_sum(each) for each in sides]) * 0.01 + y

    @tf.function
    def called(y: Any) -> Any:
        return wide(y)

    @tf.function
    def function(x: Any) -> Any:
        _, y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, wide(y)), [tf.constant(0), x])
        return called(tf.cond(tf.reduce_sum(y) > 0, lambda: wide(y), lambda: y))

    return function


def _concrete(rows: int | None) -> Any:
    import tensorflow as tf

    return _nested().get_concrete_function(tf.TensorSpec([rows, 16]))


def test_bodies_of_loops_branches_and_calls_are_put_in_order_and_compute_the_same() -> None:
    concrete = _concrete(16)
    model = TensorflowModel(concrete)
    result = lowtide.minimize(model.graph)
    assert sum(result.peak_bytes.values()) < 0.5 * sum(result.baseline_peak_bytes.values())
    planned = GraphDef.parse(model.apply(result.plan).SerializeToString())
    original = GraphDef.parse(concrete.graph.as_graph_def(add_shapes=True).SerializeToString())
    changed = [name for name, body in original.functions.items() if planned.functions[name].piece != body.piece]
    assert {name.rpartition("_")[0] for name in changed} >= {"__inference_called", "cond_true", "while_body"}
    feeds = {concrete.inputs[0].name: np.random.default_rng(0).random((16, 16)).astype(np.float32)}
    fetches = [concrete.outputs[0].name]
    one, other = (run_graph(graph, feeds, fetches) for graph in (original, planned))
    assert largest_difference(one.values, other.values) == 0


def test_an_order_inside_a_function_is_what_tensorflow_runs() -> None:
    import tensorflow as tf

    @tf.function
    def called(x: Any) -> Any:
        sides = [tf.concat([x + float(k + 1)] * 8, 0) for k in range(4)]
        return tf.add_n([tf.reduce_sum(each) for each in sides])

    concrete = tf.function(lambda x: called(x)).get_concrete_function(tf.TensorSpec([16, 16]))
    model = TensorflowModel(concrete)
    plan = lowtide.minimize(model.graph).plan
    planned = GraphDef.parse(model.apply(plan).SerializeToString())
    feeds = {concrete.inputs[0].name: np.zeros((16, 16), np.float32)}
    ran = run_graph(planned, feeds, [concrete.outputs[0].name]).order
    ((name, inner),) = plan.callees.items()
    ops = [model.graph.subgraphs[name].op_names[op] for op in inner.order().tolist()]
    assert [each for each in ran if each in set(ops)] == ops


def test_sizes_inside_functions_follow_the_sizes_that_are_given() -> None:
    def peak(model: TensorflowModel) -> int:
        return sum(lowtide.minimize(model.graph).peak_bytes.values())

    one, other = (TensorflowModel(_concrete(None), {"x.0": rows}) for rows in (16, 64))
    assert not one.graph.unmodeled
    assert peak(one) == peak(TensorflowModel(_concrete(16)))
    assert 3.9 * peak(one) < peak(other) < 4.1 * peak(one)


def test_a_saved_model_with_functions_goes_in_and_comes_out_with_equal_values(tmp_path: Path) -> None:
    import shutil

    import tensorflow as tf

    module = tf.Module()
    module.weight = tf.Variable(np.random.default_rng(0).random((16, 16)).astype(np.float32))
    nested = _nested()
    signature = tf.function(lambda x: {"y": nested(tf.matmul(x, module.weight))})
    concrete = signature.get_concrete_function(tf.TensorSpec([16, 16], name="x"))
    tf.saved_model.save(module, str(tmp_path / "in"), signatures=concrete)
    model = TensorflowModel(tmp_path / "in")
    result = lowtide.minimize(model.graph)
    assert sum(result.peak_bytes.values()) < 0.5 * sum(result.baseline_peak_bytes.values())
    shutil.copytree(tmp_path / "in", tmp_path / "out")
    model.save(result.plan, tmp_path / "out" / "saved_model.pb")
    assert (tmp_path / "out" / "saved_model.pb").read_bytes() != (tmp_path / "in" / "saved_model.pb").read_bytes()
    x = tf.constant(np.random.default_rng(1).random((16, 16)).astype(np.float32))
    values = [
        tf.saved_model.load(str(tmp_path / name)).signatures["serving_default"](x=x)["y"].numpy().tobytes()
        for name in ("in", "out")
    ]
    assert values[0] == values[1]


def test_a_saved_model_counts_what_its_functions_hold_beside_their_variables_whose_files_are_never_read(
    tmp_path: Path,
) -> None:
    """A call is handed its variables, and may write them; they are persistent, and no part of what it holds."""
    import shutil

    import tensorflow as tf

    module = tf.Module()
    module.weight = tf.Variable(np.zeros((512, 512), np.float32))

    @tf.function
    def wide(x: Any) -> Any:
        y = tf.matmul(x, module.weight)
        sides = [tf.concat([y + float(k)] * 8, 0) for k in range(4)]
        return {"y": tf.add_n([tf.reduce_sum(each) for each in sides])}

    concrete = wide.get_concrete_function(tf.TensorSpec([4, 512], name="x"))
    tf.saved_model.save(module, str(tmp_path / "in"), signatures=concrete)
    shutil.rmtree(tmp_path / "in" / "variables")
    model = TensorflowModel(tmp_path / "in")
    assert model.graph.persistent_bytes() == {"/cpu:0": 512 * 512 * 4}
    result = lowtide.minimize(model.graph)
    alone = lowtide.minimize(TensorflowModel(concrete).graph)
    assert result.baseline_peak_bytes["/cpu:0"] >= alone.baseline_peak_bytes["device"] > 4 * 8 * 4 * 512 * 4
    assert result.peak_bytes["/cpu:0"] <= 1.1 * alone.peak_bytes["device"]
    model.save(result.plan, tmp_path / "in" / "saved_model.pb")
    assert TensorflowModel(tmp_path / "in").graph.n_ops == model.graph.n_ops
