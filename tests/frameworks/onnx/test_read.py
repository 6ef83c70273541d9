"""Reading ONNX models: what becomes an op, a buffer, a callee, and what is said about the rest."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.defs import onnx_opset_version

from lowtide.core.errors import GraphError, UnsupportedError, UsageError
from lowtide.engine.graph import Graph, Lifetime
from lowtide.onnx import read

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def tensor(name: str, shape: Any, kind: int = FLOAT) -> onnx.ValueInfoProto:
    """Describe a value."""
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes: Any, inputs: Any, outputs: Any, weights: Any = (), opset: int = 17) -> ModelProto:
    """Make a model."""
    graph = helper.make_graph(nodes, "test", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def sizes_of(graph: Graph) -> dict[str, int]:
    """Return bytes by buffer name."""
    return dict(zip(graph.buffer_names, graph.sizes.tolist(), strict=True))


def test_every_case_is_read_without_running_it(case: Any) -> None:
    """Every model gives a graph, and a path gives the same one as the object."""
    assert read(case.make(), case.dims).n_ops > 0


def test_a_path_and_an_object_give_the_same_graph(case: Any, tmp_path: Path) -> None:
    """Where a model comes from makes no difference."""
    path = tmp_path / "model.onnx"
    onnx.save(case.make(), path)
    assert read(path, case.dims).fingerprint == read(case.make(), case.dims).fingerprint


def test_lifetimes_follow_the_roles_of_values(cases: dict[str, Any]) -> None:
    """Weights are persistent, inputs stay, outputs and unread results live to the end."""
    graph = read(cases["views"].make())
    lifetimes = {name: Lifetime(int(kind)) for name, kind in zip(graph.buffer_names, graph.lifetimes, strict=True)}
    assert lifetimes["x"] == Lifetime.INPUT
    assert lifetimes["axis"] == lifetimes["two_d"] == Lifetime.PERSISTENT
    assert lifetimes["flat"] == lifetimes["unread"] == Lifetime.OUTPUT
    assert lifetimes["a"] == lifetimes["r"] == Lifetime.INTERMEDIATE


def test_views_have_no_buffers_and_no_ops(cases: dict[str, Any]) -> None:
    """A chain of views reads as its base; a view that is an output is a copy."""
    graph = read(cases["views"].make())
    assert not {"v1", "v2", "v3", "nobody"} & set(graph.buffer_names)
    relu, flat = (graph.op(graph.op_names.index(name)) for name in ("r", "flat_out"))
    assert [graph.buffer_names[buffer] for buffer in relu.reads] == ["a"]
    assert relu.in_place
    assert flat.kind == "Flatten"
    assert sizes_of(graph)["flat"] == sizes_of(graph)["a"]


def test_results_in_storage_that_nobody_else_reads_overwrite_it() -> None:
    """An activation that is its input's only reader is computed in place in every order, so it has no buffer."""
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Flatten", ["a"], ["flat"]),
        helper.make_node("Relu", ["flat"], ["b"], name="only"),
        helper.make_node("Neg", ["b"], ["c"]),
        helper.make_node("Relu", ["b"], ["d"], name="one_of_two"),
        helper.make_node("Add", ["c", "d"], ["y"]),
    ]
    graph = read(model_of(nodes, [tensor("x", [8, 4])], [tensor("y", None)]))
    only, one_of_two = (graph.op(graph.op_names.index(name)) for name in ("only", "one_of_two"))
    assert [graph.buffer_names[buffer] for buffer in only.mutates] == ["a"]
    assert only.writes == only.in_place == ()
    assert [tuple(graph.buffer_names[buffer] for buffer in pair) for pair in one_of_two.in_place] == [("a", "d")]


def test_shapes_keep_nothing_alive(cases: dict[str, Any]) -> None:
    """A shape is taken together with the op that writes the value; nobody reads the value for it."""
    graph = read(cases["views"].make())
    op = graph.op(graph.op_names.index("a"))
    assert [graph.buffer_names[buffer] for buffer in op.writes] == ["a", "shape"]


def test_dynamic_dimensions_take_the_given_sizes(cases: dict[str, Any]) -> None:
    """Sizes follow the dimensions, through shapes that the model computes itself."""
    sizes = sizes_of(read(cases["attention"].make(), {"batch": 3, "length": 7}))
    assert sizes["x"] == 3 * 7 * 32 * 4
    assert sizes["q"] == 3 * 7 * 32 * 4
    assert sizes["scores"] == 3 * 4 * 7 * 7 * 4


def test_all_unbound_dimensions_are_listed(cases: dict[str, Any]) -> None:
    """One message names every dimension that needs a size, in order, and how to give it."""
    with pytest.raises(UnsupportedError, match=r"batch, length; give --dim batch=N --dim length=N"):
        read(cases["attention"].make())


def test_a_dimension_without_a_name_is_called_after_its_place() -> None:
    """An input's nameless dimension is bound as "input.axis"."""
    model = model_of([helper.make_node("Exp", ["x"], ["y"])], [tensor("x", [None, 4])], [tensor("y", None)])
    with pytest.raises(UnsupportedError, match=r"x\.0"):
        read(model)
    assert sizes_of(read(model, {"x.0": 5}))["y"] == 5 * 4 * 4


@pytest.mark.parametrize(
    ("dims", "message"), [({"nobody": 1}, "batch, length"), ({"batch": -1, "length": 1}, "negative")]
)
def test_sizes_for_wrong_dimensions_are_refused(cases: dict[str, Any], dims: dict[str, int], message: str) -> None:
    """A name the model does not have, or a negative size, is the caller's mistake."""
    with pytest.raises(UsageError, match=message):
        read(cases["attention"].make(), dims)


def test_shapes_computed_beyond_inference_are_folded() -> None:
    """A target shape that goes through a division and a product is worked out."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("ReduceProd", ["s"], ["all"], keepdims=1),
        helper.make_node("Div", ["all", "three"], ["third"]),
        helper.make_node("Concat", ["three", "third"], ["target"], axis=0),
        helper.make_node("ConstantOfShape", ["target"], ["zeros"]),
        helper.make_node("Exp", ["zeros"], ["y"]),
    ]
    three = numpy_helper.from_array(np.array([3]), "three")
    graph = read(model_of(nodes, [tensor("x", [6, 4])], [tensor("y", None)], [three]))
    assert sizes_of(graph)["y"] == 3 * 8 * 4
    assert graph.unmodeled == ()


def test_sizes_that_depend_on_data_are_said() -> None:
    """A result whose size nobody can know counts nothing and is listed."""
    graph = read(model_of([helper.make_node("NonZero", ["x"], ["y"])], [tensor("x", [6])], [tensor("y", None, INT64)]))
    assert sizes_of(graph)["y"] == 0
    assert graph.unmodeled == ("value 'y' of NonZero 'NonZero:y' counts as 0 bytes: its shape depends on the data",)


def test_stale_shapes_in_the_file_do_not_count() -> None:
    """What follows from the inputs wins over what an exporter once wrote beside the values and outputs."""
    nodes = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Exp", ["a"], ["y"])]
    model = model_of(nodes, [tensor("x", ["n", 4])], [tensor("y", [1, 4])])
    model.graph.value_info.append(tensor("a", [1, 4]))
    sizes = sizes_of(read(model, {"n": 9}))
    assert sizes["a"] == sizes["y"] == 9 * 4 * 4


def test_types_the_file_states_help_where_inference_cannot() -> None:
    """An operator nobody knows gives sizes if the file says them, and keeps its order."""
    nodes = [helper.make_node("Odd", [name], [name + "1"], domain="mine", name=name) for name in ("a", "b")]
    nodes.append(helper.make_node("Add", ["a1", "b1"], ["y"]))
    model = model_of(nodes, [tensor("a", [4]), tensor("b", ["n"])], [tensor("y", None)])
    model.graph.value_info.extend([tensor("a1", [4, 8]), tensor("b1", ["n", 8])])
    graph = read(model, {"n": 4})
    assert sizes_of(graph)["a1"] == sizes_of(graph)["b1"] == sizes_of(graph)["y"] == 4 * 8 * 4
    assert not graph.pure[:2].any()
    assert graph.ordered[:2].all()
    assert len(graph.unmodeled) == 2


@pytest.mark.parametrize(
    ("node", "fixed"),
    [
        (helper.make_node("RandomNormalLike", ["x"], ["y"]), True),
        (helper.make_node("Dropout", ["x", "", "train"], ["y"]), True),
        (helper.make_node("Dropout", ["x", "", "infer"], ["y"]), False),
        (helper.make_node("Dropout", ["x"], ["y"]), False),
        (helper.make_node("Exp", ["x"], ["y"]), False),
    ],
)
def test_random_draws_keep_their_order(node: onnx.NodeProto, fixed: bool) -> None:
    """What draws random numbers neither runs twice nor changes places; Dropout only draws in training."""
    weights = [numpy_helper.from_array(np.array(mode), name) for name, mode in (("train", True), ("infer", False))]
    graph = read(model_of([node], [tensor("x", [4])], [tensor("y", None)], weights))
    assert (bool(graph.ordered[0]), bool(graph.pure[0])) == (fixed, not fixed)


def test_a_body_with_a_random_draw_fixes_its_caller() -> None:
    """Effects inside a branch are effects of the node that takes it."""
    branches = {
        name: helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [tensor(name, [4])])
        for name, op in (("then_branch", "RandomUniformLike"), ("else_branch", "Exp"))
    }
    nodes = [helper.make_node("If", ["flag"], ["y"], **branches)]
    graph = read(model_of(nodes, [tensor("flag", [], TensorProto.BOOL), tensor("x", [4])], [tensor("y", None)]))
    assert graph.ordered[0]
    assert not graph.pure[0]


def test_bodies_become_callees_that_capture_without_counting(cases: dict[str, Any]) -> None:
    """A branch's captured values are persistent in it, and read by its caller."""
    graph = read(cases["control_flow"].make())
    branch = graph.subgraphs["if/then_branch"]
    assert Lifetime(int(branch.lifetimes[branch.buffer_names.index("x")])) == Lifetime.PERSISTENT
    caller = graph.op(graph.op_names.index("if"))
    assert {graph.buffer_names[buffer] for buffer in caller.reads} == {"flag", "x"}
    assert sorted(caller.callees) == ["if/else_branch", "if/then_branch"]


def test_weights_of_bodies_are_persistent_in_the_main_graph() -> None:
    """A weight inside a subgraph is loaded with the model."""
    weight = helper.make_tensor("w", FLOAT, [4], [1.0] * 4)
    branches = {
        name: helper.make_graph([helper.make_node("Add", ["x", "w"], [name])], name, [], [tensor(name, [4])], [weight])
        for name in ("then_branch", "else_branch")
    }
    nodes = [helper.make_node("If", ["flag"], ["y"], name="if", **branches)]
    graph = read(model_of(nodes, [tensor("flag", [], TensorProto.BOOL), tensor("x", [4])], [tensor("y", None)]))
    assert graph.persistent_bytes() == {"device": 32}


def test_functions_are_callees_with_sizes_of_their_own_call(cases: dict[str, Any]) -> None:
    """Two calls of one function with different arguments have different sizes."""
    graph = read(cases["functions"].make())
    sizes = [sizes_of(graph.subgraphs[f"{name}/function"]) for name in ("first", "second")]
    products = [next(size for buffer, size in one.items() if buffer.startswith("m")) for one in sizes]
    assert products == [16 * 32 * 4, 16 * 64 * 4]
    assert graph.unmodeled == ()


UINT2 = 25
"""The type by its number, since onnx 1.17 has no name for it."""


@pytest.mark.parametrize(
    ("kind", "elements", "expected"),
    [(TensorProto.INT4, 5, 3), (UINT2, 5, 2), (TensorProto.BFLOAT16, 5, 10), (TensorProto.BOOL, 5, 5)],
)
def test_packed_and_short_types_count_their_bits(kind: int, elements: int, expected: int) -> None:
    """Types under a byte are packed."""
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    graph = read(
        model_of(nodes, [tensor("x", [elements], kind)], [tensor("y", None, kind)], opset=min(25, onnx_opset_version()))
    )
    assert sizes_of(graph)["y"] == expected


def test_sequences_are_said_not_to_be_modeled() -> None:
    """A sequence of tensors counts nothing and is listed."""
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
    ]
    graph = read(model_of(nodes, [tensor("x", [4])], [tensor("y", [8])]))
    assert any("it is a sequence" in note for note in graph.unmodeled)


def test_a_model_without_nodes_is_an_empty_graph() -> None:
    """Nothing to run is no error."""
    assert read(model_of([], [tensor("x", [4])], [tensor("x", [4])])).n_ops == 0


def test_sizes_beyond_any_machine_are_refused() -> None:
    """Dimensions whose product leaves 63 bits are an error, not a wrapped number."""
    model = model_of([helper.make_node("Exp", ["x"], ["y"])], [tensor("x", [2**40, 2**40])], [tensor("y", None)])
    with pytest.raises(GraphError, match="2\\^63"):
        read(model)


def test_reading_a_model_changes_nothing_in_it(case: Any) -> None:
    """The caller's object stays as it was."""
    model = case.make()
    before = model.SerializeToString(deterministic=True)
    read(model, case.dims)
    assert model.SerializeToString(deterministic=True) == before


def test_reading_is_deterministic(case: Any) -> None:
    """The same model gives the same graph."""
    assert len({read(case.make(), case.dims).fingerprint for _ in range(3)}) == 1
