"""A plan is applied only where TensorFlow, left to itself, would need more: by a simulation, or by a measurement."""

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import lowtide
from lowtide.cli import main
from lowtide.engine.analysis import simulate
from lowtide.engine.plan import verify
from lowtide.frameworks.tensorflow.executor import executor_plan
from lowtide.frameworks.tensorflow.graphs.attributes import of_shape, of_shapes, of_type
from lowtide.tensorflow import GraphDef, NodeDef, TensorflowModel, optimize

ONE = {"T": of_type(1), "_output_shapes": of_shapes([[256]])}
X = NodeDef.make("x", "Placeholder", (), {"dtype": of_type(1), "shape": of_shape([256])})


def _chain() -> GraphDef:
    names = ["x", "a", "b", "c"]
    return GraphDef([X, *(NodeDef.make(name, "Softmax", [names[k]], ONE) for k, name in enumerate(names[1:]))])


def _crossed() -> GraphDef:
    """Return wide values of which each is read by two sums far apart, where what became ready last is no good order."""
    wide = {"T": of_type(1), "N": of_type(4), "_output_shapes": of_shapes([[1024]])}
    nodes = [X]
    total = {**ONE, "_output_shapes": of_shapes([[1]])}
    for k in range(6):
        nodes.append(NodeDef.make(f"wide{k}", "ConcatV2", ["x", "x", "x", "x", "axis"], wide))
        nodes.append(NodeDef.make(f"narrow{k}", "Sum", [f"wide{k}", "axis"], total))
    axis = {"dtype": of_type(3), "shape": of_shape([])}
    late = [NodeDef.make(f"late{k}", "Softmax", [f"wide{k}", "^narrow5"], wide) for k in range(6)]
    ends = [NodeDef.make(f"end{k}", "Sum", [f"late{k}", "axis"], total) for k in range(6)]
    return GraphDef([NodeDef.make("axis", "Placeholder", (), axis), *nodes, *late, *ends])


def test_the_executor_simulated_runs_every_op_once_in_a_valid_order() -> None:
    for graph in (_chain(), _crossed()):
        model = TensorflowModel(graph)
        plan = executor_plan(model.translation)
        verify(model.graph, plan, check_capacity=False)
        assert sorted(plan.order().tolist()) == list(range(model.graph.n_ops))


def test_a_graph_that_needs_no_plan_is_written_as_it_was_read_and_the_reason_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "a.pb", tmp_path / "b.pb"
    source.write_bytes(_chain().SerializeToString())
    for more in ([], ["--json"]):
        monkeypatch.setattr("sys.argv", ["lowtide", "optimize", str(source), "-o", str(target), *more])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        said = capsys.readouterr().out
        reason = json.loads(said)["left_alone"] if more else said.partition("not applied      ")[2]
        assert reason.startswith("TensorFlow needs")
        assert target.read_bytes() == source.read_bytes()
    within = optimize(_chain(), budget="200%")
    assert within.left_alone is not None
    assert within.graph == _chain()


@cache
def _net() -> tuple[Any, list[str]]:
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, (64, 64), name="x")
        for k, activation in enumerate((tf.nn.relu, tf.tanh, tf.sigmoid, tf.nn.softplus) * 2):
            weight = tf.compat.v1.get_variable(f"w{k}", (64, 64))
            x = activation(tf.nn.bias_add(tf.matmul(x, weight), tf.compat.v1.get_variable(f"b{k}", (64,)))) * 0.5
        loss = tf.reduce_mean(tf.square(x))
        gradients = tf.gradients(loss, tf.compat.v1.trainable_variables())
    return graph, [loss.name, *(tf.convert_to_tensor(each).name for each in gradients)]


@pytest.mark.tensorflow
@pytest.mark.skipif(find_spec("tensorflow") is None, reason="there is no package tensorflow")
@pytest.mark.filterwarnings("ignore")  # TensorFlow's own
def test_the_simulation_is_near_what_tensorflow_really_needs() -> None:
    graph, fetches = _net()
    model = TensorflowModel(graph, fetches=fetches)
    simulated = sum(simulate(model.graph, executor_plan(model.translation)).peak_bytes.values())
    measured = model.measure(lowtide.minimize(model.graph).plan)
    assert measured.original_bytes is not None
    assert abs(simulated - measured.original_bytes) < 0.1 * measured.original_bytes
    reason = model.reason_to_keep(lowtide.minimize(model.graph).plan, None, measured)
    assert (reason is None) == (measured.after_bytes < measured.original_bytes)
