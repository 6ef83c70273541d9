"""Broken ONNX files of every kind get one line that says what, where and what to do."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from lowtide.core.errors import InputError, LowtideError, MalformedInputError
from lowtide.engine.plan import Plan
from lowtide.onnx import OnnxModel, read
from tests.examples import examples

value = helper.make_tensor_value_info


def small(*nodes: Any, inputs: Any = ("x",), outputs: Any = ("y",), weights: Any = (), opset: int = 17) -> ModelProto:
    """Make a model of nodes over vectors of 4."""
    values = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in names] for names in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "broken", *values, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """Make a node from names separated by blanks."""
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def recursive() -> ModelProto:
    """Make a model whose functions call each other in a circle."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    functions = [
        helper.make_function("f", name, ["a"], ["b"], [helper.make_node(callee, ["a"], ["b"], domain="f")], opsets)
        for name, callee in (("One", "Two"), ("Two", "One"))
    ]
    model = small(helper.make_node("One", ["x"], ["y"], domain="f"))
    model.opset_import.add(domain="f", version=1)
    model.functions.extend(functions)
    return model


def bomb(n_functions: int, calls: int) -> ModelProto:
    """Make a model of functions that each call the next several times."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    functions = []
    for i in range(n_functions):
        domain, callee = ("f", f"F{i + 1}") if i + 1 < n_functions else ("", "Exp")
        names = ["a", *(f"t{k}" for k in range(calls - 1)), "b"]
        body = [helper.make_node(callee, [one], [other], domain=domain) for one, other in pairwise(names)]
        functions.append(helper.make_function("f", f"F{i}", ["a"], ["b"], body, opsets))
    model = small(helper.make_node("F0", ["x"], ["y"], domain="f"))
    model.opset_import.add(domain="f", version=1)
    model.functions.extend(functions)
    return model


def body_with_one_input() -> ModelProto:
    """Make a loop whose body lacks the inputs every loop has."""
    body = helper.make_graph([node("Exp", "x", "b")], "body", [], [value("b", 1, [4])])
    return small(node("Loop", "n", "y", body=body), inputs=("x", "n"))


def negative_dimension() -> ModelProto:
    """Make a model with an input of negative size."""
    model = small(node("Exp", "x", "y"))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -3
    return model


def unknown_element_type() -> ModelProto:
    """Make a model whose input has a type that ONNX does not have."""
    model = small(node("Identity", "x", "y"))
    model.graph.input[0].type.tensor_type.elem_type = 77
    return model


def escaping_weights() -> ModelProto:
    """Make a model whose weights claim to lie outside its folder."""
    weight = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="../../etc/passwd")
    return small(node("Add", "x w", "y"), weights=[weight])


BROKEN: dict[str, tuple[Callable[[], ModelProto], str]] = {
    "two writers of a name": (lambda: small(node("Exp", "x", "y"), node("Neg", "x", "y")), "exists already"),
    "a writer of an input": (lambda: small(node("Exp", "x", "x"), node("Neg", "x", "y")), "exists already"),
    "a cycle": (lambda: small(node("Add", "x b", "a"), node("Exp", "a", "b"), node("Exp", "b", "y")), "cycle"),
    "unsorted nodes": (lambda: small(node("Exp", "a", "y"), node("Exp", "x", "a")), "valid order"),
    "a missing input": (lambda: small(node("Add", "x nowhere", "y")), "nothing provides"),
    "an output nobody writes": (lambda: small(node("Exp", "x", "z")), "nothing writes"),
    "two inputs of a name": (lambda: small(node("Exp", "x", "y"), inputs=("x", "x")), "two inputs"),
    "an output twice": (lambda: small(node("Exp", "x", "y"), outputs=("y", "y")), "twice"),
    "two weights of a name": (
        lambda: small(node("Exp", "x", "y"), weights=[helper.make_tensor("w", 1, [1], [0.0])] * 2), "two initializers",
    ),
    "a function that calls itself": (recursive, "recursive"),
    "functions that double forty times": (lambda: bomb(40, 2), "inline them first"),
    "functions a thousand deep": (lambda: bomb(1000, 1), "inline them first"),
    "a loop body without inputs": (body_with_one_input, "."),
    "a negative dimension": (negative_dimension, "dimension -3"),
    "an unknown element type": (unknown_element_type, "."),
    "an operator with a strange name": (lambda: small(node("No\nOp\x1b[31m", "x", "y")), r"No\\nOp"),
    "an unknown operator": (lambda: small(node("NoSuchOperator", "x", "y")), "."),
    "no operator set": (lambda: ModelProto(ir_version=8, graph=small(node("Exp", "x", "y")).graph), "opset_import"),
    "no graph": (lambda: ModelProto(ir_version=8), "no graph"),
    "an op without results": (lambda: small(helper.make_node("Constant", [], []), node("Exp", "x", "y")), "."),
    "a view without an input": (lambda: small(helper.make_node("Reshape", [], ["r"]), node("Exp", "x", "y")), "."),
    "a shape of nothing": (lambda: small(helper.make_node("Shape", [""], ["s"]), node("Exp", "x", "y")), "."),
    "a loop without a body": (lambda: small(node("Loop", "x", "y")), "."),
    "a branch with two bodies missing": (lambda: small(node("If", "x", "y")), "."),
    "a scan of nothing": (
        lambda: small(node("Scan", "x", "y", num_scan_inputs=5, body=helper.make_graph([], "b", [], []))), ".",
    ),
}  # fmt: skip


def refusal_of(model: ModelProto) -> LowtideError | None:
    """Read a model and return the error it is refused with."""
    try:
        read(model)
    except LowtideError as error:
        return error
    return None


def is_one_line(error: BaseException) -> bool:
    """Return whether a message is fit for a terminal."""
    return bool(str(error)) and "\n" not in str(error)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_models_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    """The error is lowtide's own, says what is wrong, and is the same for a file as for an object."""
    make, message = BROKEN[name]
    path = tmp_path / "broken.onnx"
    path.write_bytes(make().SerializeToString())
    for source in (make(), path):
        with pytest.raises(InputError, match=message) as caught:
            read(source)
        assert is_one_line(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"\x00", b"PK\x03\x04", b'{"lowtide_graph": 1}', b"\x1f\x8b\x08", b"\xff" * 99]
)
def test_files_of_another_kind_are_refused(content: bytes, tmp_path: Path) -> None:
    """Empty files, archives, text and noise are no models."""
    path = tmp_path / "other.onnx"
    path.write_bytes(content)
    with pytest.raises(MalformedInputError, match=r"other\.onnx") as caught:
        read(path)
    assert is_one_line(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The message says which file is not there."""
    with pytest.raises(InputError, match=r"nowhere\.onnx"):
        read(tmp_path / "nowhere.onnx")


def test_weights_outside_the_folder_are_refused(tmp_path: Path) -> None:
    """A model does not get to name files elsewhere."""
    model = OnnxModel(escaping_weights())
    plan = Plan.baseline(model.graph)
    with pytest.raises(MalformedInputError, match="passwd"):
        model.save(plan, tmp_path / "out.onnx")


RELU = node("Relu", "a", "y")


@pytest.fixture(name="originals", scope="module")
def originals_fixture() -> list[bytes]:
    """Give small whole models to damage."""
    loop = helper.make_graph(
        [node("Exp", "s", "s2"), node("Identity", "c", "c2")], "body",
        [value("i", 7, []), value("c", 9, []), value("s", 1, [4])], [value("c2", 9, []), value("s2", 1, [4])],
    )  # fmt: skip
    weights = [helper.make_tensor("n", 7, [], [3]), helper.make_tensor("t", 7, [2], [2, -1])]
    models = [
        small(
            node("Exp", "x", "a"),
            node("Reshape", "a t", "r"),
            node("Shape", "r", "s"),
            node("Relu", "a", "y"),
            weights=weights,
        ),
        small(helper.make_node("Loop", ["n", "", "x"], ["y"], body=loop), weights=weights),
        recursive(),
    ]
    return [model.SerializeToString() for model in models]


@examples(400)
@given(
    which=st.integers(0, 2),
    cut=st.floats(0, 1),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6),
)
def test_damaged_files_never_end_in_a_traceback(
    originals: list[bytes], which: int, cut: float, changes: list[tuple[float, int]]
) -> None:
    """Whatever bytes are changed or lost, the model is read or refused with an error of lowtide's own."""
    damaged = bytearray(originals[which])
    for place, byte in changes:
        damaged[int(place * len(damaged))] = byte
    if cut < 0.5:
        damaged = damaged[: int(2 * cut * len(damaged))]
    try:
        model = ModelProto.FromString(bytes(damaged))
    except Exception:  # the parser of protobuf files is tested above
        return
    refusal = refusal_of(model)
    assert refusal is None or is_one_line(refusal)
