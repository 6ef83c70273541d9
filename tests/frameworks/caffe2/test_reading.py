"""Reading NetDefs: shapes from callers, files and rules, second writes, aliases, frees, effects."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lowtide
from lowtide.caffe2 import Argument, Caffe2Model, NetDef, OperatorDef, load_net, plan, read, run_once, write_net
from lowtide.core.errors import GraphError, LowtideError, MalformedInputError, UnsupportedError, UsageError
from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from tests.frameworks.caffe2.benchmark_nets import load_nets
from tests.oracles.netdef_messages import message_class


def _net(*rows: tuple[str, list[str], list[str]], outputs: tuple[str, ...] = ("y",), **fields: Any) -> NetDef:
    ops = [OperatorDef(type=kind, input=inputs, output=written) for kind, inputs, written in rows]
    return NetDef(op=ops, external_input=["x"], external_output=outputs, **fields)


def _sizes(graph: Graph) -> dict[str, int]:
    return dict(zip(graph.buffer_names, graph.sizes.tolist(), strict=True))


def test_an_op_in_place_mutates_and_another_writer_makes_a_buffer() -> None:
    rows = (("Relu", ["x"], ["a"]), ("Relu", ["a"], ["a"]), ("Relu", ["a"], ["b"]), ("Relu", ["b"], ["a"]))
    graph = read(_net(*rows, ("Relu", ["a"], ["y"])), shapes={"x": [4]})
    assert graph.buffer_names == ("x", "a", "b", "a#2", "y")
    assert [list(row) for row in graph.mutates] == [[], [1], [], [], []]


def test_branches_with_one_blob_name_may_be_reordered() -> None:
    """Two live buffers of one blob get different names."""
    rows = [("Tile", ["x"], ["t"]), ("Relu", ["t"], ["a"]), ("SumElements", ["a"], ["b"])]
    rows += [("Tile", ["x"], ["t"]), ("Tanh", ["t"], ["c"]), ("SumElements", ["c"], ["d"]), ("Add", ["b", "d"], ["y"])]
    net = _net(*rows)
    model = Caffe2Model(net, shapes={"x": [16]})
    applied = model.apply(Problem(model.graph).plan(np.asarray([3, 0, 1, 4, 2, 5, 6], np.int32)))
    assert [list(op.output) for op in applied.op if op.type == "Tile"] == [["t"], ["t__v2"]]
    inputs = {"x": np.arange(16, dtype=np.float32) - 8}
    assert run_once(applied, inputs, ["y"]).results == run_once(net, inputs, ["y"]).results


_DUMPED = """
op { input: "x" input: "w" input: "b" output: "y" type: "FC" }
external_input: "x" external_input: "w" external_input: "b" external_output: "y"
arg { name: "shape_info"
  tensors { dims: 8 dims: 3 data_type: FLOAT int32_data: 1 int32_data: 2 name: "x" }
  tensors { dims: 5 data_type: FLOAT int32_data: 2 name: "b" }
  tensors { dims: 7 data_type: STRING name: "other" } }
arg { name: "qshape_info"
  qtensors { dims: 5 dims: 3 precision: 0 scale: 1 bias: 0 is_signed: false name: "w" data_type: UINT8 } }
"""


@pytest.mark.parametrize("prefix", ["", "input_"])
def test_shapes_that_caffe2_dumps_into_a_net_are_read(prefix: str, tmp_path: Path) -> None:
    """Shapes are tensors without contents; the caller's shapes have priority."""
    path = tmp_path / "dumped.pbtxt"
    path.write_text(_DUMPED.replace('"shape_info', f'"{prefix}shape_info').replace('"qshape', f'"{prefix}qshape'))
    assert _sizes(read(path)) == {"x": 96, "w": 15, "b": 20, "y": 160}
    binary = tmp_path / "dumped.pb"
    binary.write_bytes(write_net(load_net(path), binary.name))
    assert _sizes(read(binary)) == _sizes(read(path))
    assert _sizes(read(path, shapes={"x": [2, 3]}))["y"] == 40


def test_an_alias_is_the_buffer_it_names_and_a_free_is_no_op() -> None:
    rows = (("Relu", ["x"], ["a"]), ("Alias", ["a"], ["z"]), ("Relu", ["z"], ["y"]), ("Free", ["a"], ["a"]))
    model = Caffe2Model(_net(*rows), shapes={"x": [4]})
    assert model.graph.op_kinds == ("Relu", "Alias", "Relu")
    assert model.graph.buffer_names == ("x", "a", "y")
    assert model.measure(lowtide.minimize(model.graph).plan).outputs_equal
    with pytest.raises(MalformedInputError, match="freed"):
        read(_net(("Relu", ["x"], ["a"]), ("Free", ["a"], ["a"]), ("Relu", ["a"], ["y"])), shapes={"x": [4]})


def test_a_write_to_an_aliased_blob_mutates_its_buffer() -> None:
    rows = [("Relu", ["x"], ["a"]), ("Alias", ["a"], ["z"]), ("Tanh", ["x"], ["a"]), ("Relu", ["z"], ["y"])]
    model = Caffe2Model(_net(*rows), shapes={"x": [4]})
    assert model.graph.buffer_names == ("x", "a", "y")
    assert list(model.graph.mutates[2]) == [1]
    assert model.measure(lowtide.minimize(model.graph).plan).outputs_equal


def test_control_inputs_keep_their_order() -> None:
    net = _net(("Relu", ["x"], ["a"]), ("Relu", ["x"], ["b"]), ("Add", ["a", "b"], ["y"]))
    net.op[1].control_input.append("a")
    assert [list(row) for row in read(net, shapes={"x": [4]}).after][1] == [0]


def test_dag_nets_have_a_note_and_become_simple() -> None:
    model = Caffe2Model(_net(("Relu", ["x"], ["y"]), type="dag", num_workers=4), shapes={"x": [4]})
    assert any("'dag'" in note for note in model.graph.unmodeled)
    assert model.apply(lowtide.minimize(model.graph).plan).type == "simple"


def test_unknown_ops_keep_their_order_and_are_listed() -> None:
    graph = read(_net(("Mystery", ["x"], ["a"]), ("Relu", ["a"], ["y"])), shapes={"x": [4]})
    assert not graph.pure[0]
    assert graph.ordered[0]
    assert any("Mystery" in note for note in graph.unmodeled)
    assert any("'a'" in note and "0 bytes" in note for note in graph.unmodeled)
    known = read(_net(("Mystery", ["x"], ["a"]), ("Relu", ["a"], ["y"])), shapes={"x": [4], "a": 40, "y": 40})
    assert _sizes(known) == {"x": 16, "a": 40, "y": 40}


def test_shapes_are_taken_in_every_form() -> None:
    net = _net(("Copy", ["x"], ["y"]))
    for value, size in (
        ([2, 3], 24),
        ([1, [2, 3]], 24),
        (["int64", [2, 3]], 48),
        ([7, [2, 3]], 48),
        (np.zeros((2, 3), np.float16), 12),
        ([], 4),
    ):
        assert _sizes(read(net, shapes={"x": value})) == {"x": size, "y": size}
    assert _sizes(read(net, {"x.0": 2, "x.1": 5})) == {"x": 40, "y": 40}
    assert _sizes(read(net, {"x.0": 7}, shapes={"x": [2, 3]})) == {"x": 84, "y": 84}


@pytest.mark.parametrize("value", ["text", [1.5], [[1]], -1, {"a": 1}, [99, [1]], ["int65", [1]], [True], None, [-1]])
def test_invalid_shapes_give_a_one_line_error(value: Any) -> None:
    with pytest.raises(UsageError, match="'x'"):
        read(_net(("Copy", ["x"], ["y"])), shapes={"x": value})


def test_missing_shapes_are_named_with_the_ways_to_give_them() -> None:
    with pytest.raises(UnsupportedError, match=r"'x'.*value_info\.json.*--dim"):
        read(_net(("Copy", ["x"], ["y"])))
    with pytest.raises(UsageError, match=r"no dimension 'z\.0'"):
        read(_net(("Copy", ["x"], ["y"])), {"z.0": 4}, shapes={"x": [1]})
    with pytest.raises(UsageError, match=r"x\.0"):
        read(_net(("Copy", ["x"], ["y"])), {"x.1": 4})
    with pytest.raises(GraphError):
        read(_net(("Copy", ["x"], ["y"])), shapes={"x": [2**40, 2**40]})
    with pytest.raises(UsageError, match="'w'"):
        Caffe2Model(_net(("Copy", ["x"], ["y"])), shapes={"x": [1]}, parameters=["w"])


def test_side_files_give_shapes_and_parameters(tmp_path: Path) -> None:
    made = load_nets().conv_chain(2, training=False)
    fills = [
        OperatorDef(type="XavierFill", output=[name], arg=[Argument(name="shape", ints=made.shapes[name][1])])
        for name in made.parameters
    ]
    for name, net in (("predict_net.pb", made.net), ("init_net.pb", NetDef(op=fills))):
        (tmp_path / name).write_bytes(write_net(net, name))
    (tmp_path / "value_info.json").write_text(json.dumps({"data": [1, [4, 3, 16, 16]]}))
    graph = lowtide.read(tmp_path / "predict_net.pb")
    expected = Caffe2Model(made.net, shapes=made.shapes, parameters=made.parameters).graph
    assert graph.fingerprint == expected.fingerprint
    assert graph.persistent_bytes()["device"] > 0
    (tmp_path / "predict_net.value_info.json").write_text("[1]")
    with pytest.raises(MalformedInputError, match="value_info"):
        lowtide.read(tmp_path / "predict_net.pb")


def test_an_applied_message_is_of_the_kind_that_was_read() -> None:
    made = load_nets().inception(1, training=False)
    theirs = message_class("NetDef").FromString(write_net(made.net, "net.pb"))
    model = Caffe2Model(theirs, shapes=made.shapes)
    result = lowtide.minimize(model.graph, effort="fast")
    applied = model.apply(result.plan)
    assert isinstance(applied, message_class("NetDef"))
    assert any(op.type == "Free" for op in applied.op)
    assert theirs == message_class("NetDef").FromString(write_net(made.net, "net.pb"))
    planned = plan(theirs, made.shapes)
    assert isinstance(planned.net, message_class("NetDef"))
    assert planned.lower_bound_bytes <= planned.peak_bytes <= planned.arena_bytes <= planned.slot_bytes
    assert planned.slot_bytes <= planned.memonger_bytes <= planned.blob_bytes
    assert planned.saved_by_offsets_bytes >= 0
    assert max(planned.offsets.values()) < planned.arena_bytes
    assert sorted(planned.order) == list(range(len(made.net.op)))


def test_an_unchanged_net_keeps_its_names() -> None:
    made = load_nets().residual(2, training=True)
    model = Caffe2Model(made.net, shapes=made.shapes)
    applied = model.apply(Plan.baseline(model.graph))
    assert [op for op in applied.op if op.type != "Free"] == made.net.op


@pytest.mark.parametrize(
    "net",
    [
        NetDef(),
        NetDef(op=[OperatorDef()]),
        NetDef(op=[OperatorDef(type="Relu", input=[""])]),
        NetDef(op=[OperatorDef(type="RecurrentNetwork", arg=[Argument(name="step_net", s=b"op{")])]),
    ],
)
def test_invalid_nets_give_a_one_line_error(net: NetDef) -> None:
    with pytest.raises(LowtideError) as refused:
        load_net(net)
    assert "\n" not in str(refused.value)
