"""Plans that run nodes again: the nodes stand twice in the file, and the runtime frees what was dropped meanwhile."""

from random import Random

import onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import GraphProto, ModelProto, TensorProto, helper

import lowtide
from lowtide.engine.plan import CopyIn, CopyOut, Plan
from lowtide.frameworks.onnx.measure import measure_peak
from lowtide.frameworks.onnx.running.inputs import random_inputs
from lowtide.frameworks.outputs import largest_difference
from lowtide.onnx import OnnxModel
from tests.examples import examples
from tests.frameworks.onnx.conftest import integers, model_of, node, value
from tests.frameworks.onnx.test_random_graphs import models
from tests.oracles.random_plans import random_plan


def skip_connection() -> ModelProto:
    """Give a cheap value that is read first, through a view, and again after all else, by a branch."""
    nodes = [
        node("Tile", "x times", "wide", name="widen"),
        node("Reshape", "wide pairs", "pairs_of_wide", name="pairs"),
        node("ReduceSum", "pairs_of_wide axis", "narrow", keepdims=0, name="shrink"),
        node("Tile", "narrow more_times", "other", name="widen_other"),
        node("ReduceSum", "other axis", "least", name="shrink_other"),
        node("If", "flag", "y", then_branch=_branch("Neg"), else_branch=_branch("Exp"), name="if"),
    ]
    contents = {"times": [400], "more_times": [1000], "pairs": [200, -1], "axis": [0]}
    weights = [integers(name, *content) for name, content in contents.items()]
    inputs = [value("x", [16]), value("flag", [], TensorProto.BOOL)]
    return model_of(helper.make_graph(nodes, "skip", inputs, [value("y", [32])], weights))


def _branch(operator: str) -> GraphProto:
    nodes = [
        node("Add", "pairs_of_wide least", "shifted"),
        node(operator, "shifted", "wider"),
        node("ReduceSum", "wider axis", f"of_{operator}", keepdims=0),
    ]
    return helper.make_graph(nodes, operator, [], [value(f"of_{operator}", [32])])


def planned(model: OnnxModel, budget: int) -> lowtide.Result:
    """Plan within so many bytes beside the weights, or as near as reruns come."""
    whole = budget + sum(model.graph.persistent_bytes().values())
    return lowtide.minimize(model.graph, budget=f"{whole} B", allow=("reorder", "share", "recompute"))


def has_reruns(model: OnnxModel, plan: Plan) -> bool:
    """Return whether anything runs twice."""
    return len(plan.order()) > model.graph.n_ops


def test_a_cheap_value_is_computed_again() -> None:
    """The large value stands twice in the file, a view of it and what branches capture follow, and less is measured."""
    model = OnnxModel(skip_connection())
    ordered = lowtide.minimize(model.graph)
    result = planned(model, 1)
    assert has_reruns(model, result.plan)
    file = model.apply(result.plan)
    onnx.checker.check_model(file, full_check=True)
    assert [made.op_type for made in file.graph.node].count("Tile") == 3
    measured = model.measure(result.plan)
    assert measured.outputs_equal
    assert measured.after_bytes == sum(result.peak_bytes.values()) < sum(ordered.peak_bytes.values())


def test_values_that_the_runtime_casts_on_loading_are_not_computed_again() -> None:
    """Where float16 is rounded depends on all readers of a value, so a second copy could change its bits."""
    model = skip_connection()
    for each in (model.graph.input[0], model.graph.output[0]):
        each.type.tensor_type.elem_type = TensorProto.FLOAT16
    for branch in model.graph.node[-1].attribute:
        branch.g.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    given = OnnxModel(model)
    result = planned(given, 1)
    assert not has_reruns(given, result.plan)
    assert given.measure(result.plan).outputs_equal
    optimized = given.optimized("none")
    result = planned(optimized, 1)
    assert has_reruns(optimized, result.plan)
    assert optimized.measure(result.plan).outputs_equal


def test_predicted_is_measured_with_reruns() -> None:
    """Plans at the least peak that reruns reach take what was predicted; whatever else runs again keeps all bits."""
    reruns: list[Plan] = []

    @examples(200)
    @given(model=models(), seed=st.integers(0, 1000))
    def check(model: ModelProto, seed: int) -> None:
        read = OnnxModel(model)
        result = planned(read, 1)
        if has_reruns(read, result.plan):
            reruns.append(result.plan)
            shapes = sum(made.op_type == "Shape" for made in model.graph.node)
            measured = read.measure(result.plan)
            assert measured.outputs_equal
            assert abs(sum(result.peak_bytes.values()) - measured.after_bytes) <= 16 * shapes
        wild = random_plan(read.graph, Random(seed))
        if not any(isinstance(step, CopyIn | CopyOut) for step in wild.steps()):
            inputs = random_inputs(model, {})
            file = read.apply(wild)
            onnx.checker.check_model(file)
            assert largest_difference(measure_peak(file, inputs).outputs, measure_peak(model, inputs).outputs) == 0

    check()
    assert reruns, "no random model gained by running anything again"
