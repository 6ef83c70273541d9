"""The levels of Grappler's memory optimizer on graphs of TensorFlow: the answers that its own tests state, and ours."""

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np
import pytest

import lowtide
from lowtide.core.errors import UsageError
from lowtide.core.progress import Stage
from lowtide.frameworks.tensorflow.graphs.attributes import of_integer, of_shape, of_type
from lowtide.tensorflow import GraphDef, NodeDef, OptimizedGraph, TensorflowModel, optimize
from tests.frameworks.tensorflow.small_graphs import FLOAT, node, placeholder

GPU = "/device:GPU:0"
MEBIBYTE = 2**20
HALF = MEBIBYTE // 8
"""As many floats as half a mebibyte holds."""


def _on_gpu(nodes: Sequence[NodeDef]) -> list[NodeDef]:
    return [NodeDef(bytes(each.piece) + bytes((4 << 3 | 2, len(GPU))) + GPU.encode()) for each in nodes]


def _variable(name: str, size: int = HALF) -> NodeDef:
    kind = {"dtype": of_type(FLOAT), "shape": of_shape((size,))}
    return NodeDef.make(name, "VariableV2", (), kind)


def _inputs(graph: GraphDef) -> Mapping[str, list[str]]:
    return {each.name: list(each.inputs) for each in graph.nodes}


CHAIN = [
    _variable("a"),
    node("b", "Identity", ["a"], (HALF,), _recompute_hint=of_integer(0)),
    node("c", "Identity", ["b"], (HALF,)),
    node("gradients/d", "AddN", ["c"], (HALF,)),
    node("gradients/e", "AddN", ["gradients/d", "b"], (HALF,)),
    node("gradients/f", "AddN", ["gradients/e", "a"], (HALF,)),
]
"""Of a chain of six, one is hinted."""


@pytest.mark.parametrize("level", ["manual", "original:manual"])
def test_a_chain_of_six_becomes_eight(level: str) -> None:
    done = optimize(GraphDef(CHAIN), level)
    inputs = _inputs(done.graph)
    assert len(done.graph.nodes) == 8
    assert done.recomputed == ("b",)
    assert inputs["Recomputed/b"] == ["a", "^RecomputeTrigger/b"]
    assert inputs["RecomputeTrigger/b"] == ["^gradients/d"]
    assert inputs["gradients/e"] == ["gradients/d", "Recomputed/b"]
    assert inputs["c"] == ["b"]


def _layers(count: int, scope: str = "gradients/", feed: str | None = None) -> list[NodeDef]:
    """Convolution, batch norm and ReLU, with gradients that look at shapes as TensorFlow makes them."""
    wide = (HALF,)
    nodes = [placeholder("relu-1", wide)]
    for k in range(count):
        nodes.append(_variable(f"w{k}", 4))
        nodes.append(node(f"conv{k}", "Conv2D", [f"relu{k - 1}", f"w{k}"], wide))
        nodes.append(node(f"bn{k}", "BiasAdd", [f"conv{k}", f"w{k}"], wide))
        nodes.append(node(f"relu{k}", "Relu", [f"bn{k}"], wide))
    gradient = f"{scope}start"
    nodes.append(node(gradient, "Mean", [f"relu{count - 1}", "relu-1"], wide))
    for k in reversed(range(count)):
        shape = NodeDef.make(f"{scope}shape{k}", "Shape", [f"relu{k - 1}"], {"T": of_type(FLOAT)})
        nodes.append(shape)
        nodes.append(node(f"{scope}relu{k}", "ReluGrad", [gradient, f"relu{k}"], wide))
        nodes.append(node(f"{scope}bn{k}", "TanhGrad", [f"conv{k}", f"{scope}relu{k}"], wide))
        gradient = f"{scope}input{k}"
        reads = [shape.name, f"{scope}bn{k}", f"{scope}bn{k}"]
        nodes.append(node(gradient, "Conv2DBackpropInput", reads, wide))
    return [each.with_attributes({"_output_shapes": _one(1)}) if "shape" in each.name else each for each in nodes]


def _one(size: int) -> bytes:
    from lowtide.frameworks.tensorflow.graphs.attributes import of_shapes

    return of_shapes([(size,)])


@pytest.mark.parametrize("level", ["recomputation", "heuristics", "original:recomputation", "original"])
@pytest.mark.parametrize(
    ("scope", "asked_for", "copies"),
    [("gradients/", "gradients/", 20), ("optimizer/gradients/", "gradients/", 20), ("gradients/", "optimizer/", 0)],
)
def test_of_ten_layers_twenty_nodes_are_copied_if_the_scope_matches(
    level: str, scope: str, asked_for: str, copies: int
) -> None:
    done = optimize(GraphDef(_layers(10, scope)), level, scope=asked_for)
    names = [each.name for each in done.graph.nodes]
    assert sum(name.startswith("Recomputed/") for name in names) == copies == len(done.recomputed)
    assert sum(name.startswith("RecomputeTrigger/") for name in names) == copies


def test_nine_hints_make_nine_copies() -> None:
    hint = {"_recompute_hint": of_integer(0)}
    hinted = [
        each.with_attributes(hint) if each.name in {f"relu{k}" for k in range(9)} else each for each in _layers(10)
    ]
    for level in ("manual", "original:manual"):
        assert len(optimize(GraphDef(hinted), level).recomputed) == 9


@pytest.mark.parametrize("level", ["recomputation", "original:recomputation"])
def test_a_fed_node_is_never_copied(level: str) -> None:
    done = optimize(GraphDef(_layers(10)), level, feeds=["relu3:0"])
    assert "relu3" not in done.recomputed
    assert "relu4" in done.recomputed


def test_the_triggers_bind_where_those_of_the_original_do_not() -> None:
    """A shape is ready at once, so that the original's copies run in the forward pass; its estimate stays as it was."""
    graph = GraphDef(_layers(10))
    original, ours = optimize(graph, "original:recomputation"), optimize(graph, "recomputation")
    (before,) = ours.before_bytes.values()
    (theirs,), (mended,) = original.after_bytes.values(), ours.after_bytes.values()
    assert theirs >= before
    assert mended < 0.8 * before


def test_a_level_twice_is_a_level_once() -> None:
    for level in ("recomputation", "heuristics", "manual"):
        once = optimize(GraphDef(_layers(6)), level).graph
        assert optimize(once, level).graph == once


def _activations(count: int, scope: str = "gradients/", kind: str = "Conv2D") -> GraphDef:
    """Return layers whose activations the gradients read: the inputs of these are as large, so that copies of cheap
    nodes alone keep as much as they free."""
    wide = (HALF,)
    nodes = [placeholder("relu-1", wide), _variable("w", 4)]
    for k in range(count):
        nodes += [node(f"conv{k}", kind, [f"relu{k - 1}", "w"], wide), node(f"relu{k}", "Relu", [f"conv{k}"], wide)]
    gradient = f"relu{count - 1}"
    for k in reversed(range(count)):
        nodes.append(node(f"{scope}relu{k}", "ReluGrad", [gradient, f"relu{k}"], wide))
        gradient = f"{scope}relu{k}"
    return GraphDef(nodes)


@pytest.mark.parametrize("level", ["recomputation", "heuristics"])
@pytest.mark.parametrize("scope", ["gradients/", "gradient_tape/"])
def test_where_copies_of_cheap_nodes_lower_nothing_others_do_and_only_once(level: str, scope: str) -> None:
    """The gradients of functions of TensorFlow 2 are in another scope, which Grappler does not know."""
    graph = _activations(12, scope)
    kinds = {each.name: each.op for each in graph.nodes}
    done = optimize(graph, level)
    (before,), (after,) = done.before_bytes.values(), done.after_bytes.values()
    assert after < 0.9 * before
    assert "Conv2D" in {kinds[name] for name in done.recomputed}
    assert optimize(done.graph, level).graph == done.graph
    (theirs,) = optimize(graph, f"original:{level}").after_bytes.values()
    assert theirs >= before


def test_what_is_fed_or_has_effects_is_not_among_the_others() -> None:
    assert not any(
        name.startswith("conv") for name in optimize(_activations(12, kind="Mystery"), "heuristics").recomputed
    )
    done = optimize(_activations(12), "recomputation", feeds=["conv3:0"])
    assert "conv3" not in done.recomputed
    assert optimize(_activations(12, "elsewhere/"), "recomputation").recomputed == ()


SWAP = [
    _variable("v"),
    node("a", "Square", ["v"], (HALF,)),
    node("b", "Square", ["a"], (HALF,)),
    node("c", "Sqrt", ["b"], (HALF,)),
    node("d", "Sqrt", ["c"], (HALF,)),
    node("f", "Exp", ["d"], (HALF,)),
    node("e", "AddN", ["a", "f"], (HALF,), _swap_to_host=of_integer(0), N=of_integer(2)),
]
SECONDS = dict.fromkeys("abcdef", 1.0)


@pytest.mark.parametrize("level", ["manual", "original:manual", "default", "heuristics"])
def test_seven_nodes_become_nine_for_one_hinted_swap_and_stay_so(level: str) -> None:
    done = optimize(GraphDef(_on_gpu(SWAP)), level, seconds=SECONDS)
    inputs = _inputs(done.graph)
    assert len(done.graph.nodes) == 9
    assert done.swapped == (("e", 0),)
    assert inputs["swap_out_e_0"] == ["a"]
    assert inputs["swap_in_e_0"][0] == "swap_out_e_0"
    assert inputs["swap_in_e_0"][1].startswith("^")
    assert inputs["e"] == ["swap_in_e_0", "f"]
    assert inputs["b"] == ["a", "^swap_out_e_0"]
    kinds = {each.name: (each.op, each.device) for each in done.graph.nodes}
    assert kinds["swap_out_e_0"] == ("_CopyFromGpuToHost", GPU)
    assert kinds["swap_in_e_0"] == ("_CopyFromHostToGpu", GPU)
    again = optimize(done.graph, level, seconds=SECONDS, shapes={"swap_out_e_0": [1], "swap_in_e_0": [HALF]})
    assert len(again.graph.nodes) == 9


CONCAT = [
    _variable("v"),
    node("a", "Identity", ["v"], (HALF,)),
    node("b", "Square", ["v"], (HALF,)),
    node("c", "Sqrt", ["a"], (HALF,)),
    node("d", "Identity", ["b"], (HALF,)),
    node("f", "Square", ["a"], (HALF,)),
    node("g", "Sqrt", ["b"], (HALF,)),
    node("h", "Exp", ["c"], (HALF,)),
    node("e", "Pack", ["a", "b", "c", "d"], (4, HALF), N=of_integer(4)),
    node("i", "Log", ["d"], (HALF,)),
]


@pytest.mark.parametrize("level", ["swapping", "default", "heuristics", "original:swapping"])
def test_inputs_one_to_three_of_a_concatenation_are_swapped_and_input_zero_is_not(level: str) -> None:
    """Input 0 is another name of a variable, which stays where it is."""
    seconds = {each.name: 1.0 for each in CONCAT if each.name != "v"}
    done = optimize(GraphDef(_on_gpu(CONCAT)), level, devices={"/gpu:0": "1 MiB"}, seconds=seconds)
    swapped = [number for name, number in done.swapped if name == "e"]
    assert sorted(swapped) == [1, 2, 3]


def test_a_reference_is_never_swapped() -> None:
    nodes = [*SWAP[:-1], NodeDef.make("w", "Assign", ["v", "f"], {"T": of_type(FLOAT), "_swap_to_host": of_integer(0)})]
    done = optimize(GraphDef(_on_gpu(nodes)), "manual", seconds=SECONDS, shapes={"w": [HALF]})
    assert done.swapped == ()


SUM = [
    *(node(name, "RandomStandardNormal", [], (HALF,), dtype=of_type(FLOAT)) for name in "abc"),
    node("d", "AddN", ["a", "b", "c"], (HALF,), N=of_integer(3)),
    node("e", "Square", ["d"], (HALF,)),
]


@pytest.mark.parametrize("level", ["scheduling", "default", "heuristics", "original:scheduling"])
def test_a_sum_near_capacity_becomes_an_accumulation_under_its_name(level: str) -> None:
    def at(capacity: str) -> OptimizedGraph:
        return optimize(GraphDef(_on_gpu(SUM)), level, devices={"/gpu:0": capacity})

    assert at("8 MiB").accumulated == ()
    done = at("2 MiB")
    assert done.accumulated == ("d",)
    kinds = {each.name: each.op for each in done.graph.nodes}
    assert kinds["d"] == "DestroyTemporaryVariable"
    assert kinds["d/tmp_var"] == "TemporaryVariable"
    assert kinds["d/tmp_var_zeros"] == "ZerosLike"
    assert kinds["d/tmp_var_initializer"] == "Assign"
    inputs = _inputs(done.graph)
    assert [inputs[f"d/tmp_var_accum_{k}"][1] for k in range(3)] == ["a", "b", "c"]
    assert inputs["d"][0] == "d/tmp_var_initializer"
    assert inputs["e"] == ["d"]


def test_an_assignment_on_one_device_is_relaxed() -> None:
    nodes = [_variable("v"), placeholder("x", (HALF,)), NodeDef.make("w", "Assign", ["v", "x"], {"T": of_type(FLOAT)})]
    done = optimize(GraphDef(_on_gpu(nodes)), "default", shapes={"w": [HALF]})
    assert done.relaxed == ("w",)
    (assign,) = (each for each in done.graph.nodes if each.name == "w")
    assert assign.attribute("_grappler_relax_allocator_constraints") is not None
    assert optimize(GraphDef(_on_gpu(nodes)), "no", shapes={"w": [HALF]}).graph == GraphDef(_on_gpu(nodes))


def test_a_budget_is_met_with_copies_and_an_order_that_reads_back_as_planned() -> None:
    graph = GraphDef(_layers(8))
    lines: list[str] = []
    done = optimize(graph, budget="70%", progress=lines.append)
    assert Stage.ORDER in lines
    assert done.result is not None
    assert done.result.shortfall is None
    assert done.recomputed
    again = TensorflowModel(done.graph).graph
    assert lowtide.minimize(again, allow=("share",)).peak_bytes == done.result.peak_bytes


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"level": "most"}, "unknown level 'most'"),
        ({"level": "original:most"}, "unknown level"),
        ({"level": "no", "budget": "70%"}, "only one"),
        ({"level": "manual", "scope": ""}, "scope"),
        ({"level": "manual", "devices": {"gpu?": 5}}, "not a device"),
    ],
)
def test_what_is_wrong_with_a_call_is_said_in_one_line(arguments: dict, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        optimize(GraphDef(CHAIN), **arguments)


def test_the_command_line_writes_a_level(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lowtide.cli import main

    (tmp_path / "a.pb").write_bytes(GraphDef(_layers(4)).SerializeToString())
    command = ["lowtide", "optimize", str(tmp_path / "a.pb"), "--level", "recomputation", "-o", str(tmp_path / "b.pb")]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert "recomputed: " in capsys.readouterr().out
    expected = optimize(GraphDef(_layers(4)), "recomputation").graph
    assert (tmp_path / "b.pb").read_bytes() == expected.SerializeToString()


def _residual(count: int) -> list[NodeDef]:
    """Blocks with a sum of two branches and statistics of the batch, and their gradients in reverse."""
    wide = (HALF,)
    nodes = [placeholder("out-1", wide)]
    for k in range(count):
        nodes.append(_variable(f"w{k}", 4))
        nodes.append(node(f"conv{k}", "Conv2D", [f"out{k - 1}", f"w{k}"], wide))
        nodes.append(node(f"stop{k}", "StopGradient", [f"conv{k}"], wide))
        nodes.append(node(f"centered{k}", "SquaredDifference", [f"conv{k}", f"stop{k}"], wide))
        nodes.append(node(f"norm{k}", "Mul", [f"centered{k}", f"conv{k}"], wide))
        nodes.append(node(f"sum{k}", "AddV2", [f"norm{k}", f"out{k - 1}"], wide))
        nodes.append(node(f"out{k}", "Relu", [f"sum{k}"], wide))
    gradient = "gradients/start"
    nodes.append(node(gradient, "Square", [f"out{count - 1}"], wide))
    for k in reversed(range(count)):
        nodes.append(node(f"gradients/relu{k}", "ReluGrad", [gradient, f"out{k}"], wide))
        nodes.append(node(f"gradients/norm{k}", "Mul", [f"gradients/relu{k}", f"centered{k}"], wide))
        nodes.append(
            node(f"gradients/conv{k}", "Conv2DBackpropInput", [f"stop{k}", f"w{k}", f"gradients/norm{k}"], wide)
        )
        gradient = f"gradients/sum{k}"
        nodes.append(node(gradient, "AddV2", [f"gradients/conv{k}", f"gradients/relu{k}"], wide))
    return nodes


def _has_cycle(graph: GraphDef) -> bool:
    sources = {each.name: [text.lstrip("^").partition(":")[0] for text in each.inputs] for each in graph.nodes}
    try:
        TopologicalSorter(sources).prepare()
    except CycleError:
        return True
    return False


@pytest.mark.parametrize("device", ["/gpu:0", "/cpu:0"])
@pytest.mark.parametrize("capacity", ["2 MiB", "4 MiB", "7 MiB"])
def test_a_residual_net_gets_no_cycle_and_copies_only_on_a_device_with_its_own_memory(
    device: str, capacity: str
) -> None:
    nodes = [NodeDef(bytes(each.piece) + bytes((4 << 3 | 2, len(device))) + device.encode()) for each in _residual(6)]
    for level in ("heuristics", "default", "swapping", "original:swapping", "original"):
        done = optimize(GraphDef(nodes), level, devices={device: capacity})
        assert not _has_cycle(done.graph)
        assert device == "/gpu:0" or not any(each.op.startswith("_Copy") for each in done.graph.nodes)
        assert sum(done.after_bytes.values()) <= sum(done.before_bytes.values()) or level.startswith("original")


def test_a_hinted_swap_on_a_cpu_is_left_out() -> None:
    nodes = [each.renamed(each.name, list(each.inputs)) for each in SWAP]
    done = optimize(GraphDef(nodes), "manual", devices={"/cpu:0": "8 MiB"}, seconds=SECONDS)
    assert done.swapped == ()
    assert done.graph == GraphDef(nodes)


@pytest.mark.tensorflow
@pytest.mark.parametrize("level", ["heuristics", "default", "swapping"])
def test_tensorflow_runs_a_residual_net_of_every_level_on_a_cpu_with_equal_results(level: str) -> None:
    tf = pytest.importorskip("tensorflow")
    with tf.Graph().as_default() as made:
        out = source = tf.compat.v1.placeholder(tf.float32, (4, 12, 12, 8), "x")
        draws = [np.random.default_rng(k).standard_normal((3, 3, 8, 8)) / 9 for k in range(5)]
        weights = [tf.constant(each, tf.float32) for each in draws]
        for weight in weights:
            hidden = tf.nn.conv2d(out, weight, 1, "SAME")
            mean, variance = tf.nn.moments(hidden, [0, 1, 2])
            out = tf.nn.relu(out + (hidden - mean) * tf.math.rsqrt(variance + 1e-3))
        fetches = [each.name for each in tf.gradients(tf.reduce_sum(out * out), weights)]
    plain = made.as_graph_def()
    done = optimize(plain, level, devices={"/cpu:0": "96 KiB"}, feeds=["x:0"], fetches=fetches)
    assert (done.graph != plain) == (level == "heuristics")
    results: list[list[np.ndarray]] = []
    for graph in (plain, done.graph):
        with tf.Graph().as_default() as imported:
            tf.import_graph_def(graph, name="")
            with tf.compat.v1.Session(graph=imported) as session:
                fed = {source.name: np.random.default_rng(0).standard_normal((4, 12, 12, 8))}
                results.append(session.run(fetches, fed))
    assert all(map(np.array_equal, *results))
