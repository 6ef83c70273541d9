"""Graphs of TensorFlow are read as they would run, and what is wrong with one is said in one line."""

import gzip
import random
import tracemalloc
from pathlib import Path

import pytest

import lowtide
from lowtide.core.errors import InputError, LowtideError, MalformedInputError, UnsupportedError, UsageError
from lowtide.engine.offload import Host
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Step
from lowtide.engine.recompute.checkpointing import plan_of_runs
from lowtide.frameworks.tensorflow.graphs.attributes import of_shape, of_shapes, of_type
from lowtide.frameworks.tensorflow.graphs.messages import encode_field
from lowtide.frameworks.wire import encode_bytes, encode_number
from lowtide.tensorflow import GraphDef, NodeDef, TensorflowModel, optimize
from tests.frameworks.tensorflow.small_graphs import FLOAT, chain, node, placeholder


def test_views_are_no_ops_and_their_readers_read_what_they_show() -> None:
    graph = TensorflowModel(chain(["Relu", "Reshape", "Identity", "Tanh"])).graph
    assert graph.op_names == ("n0", "n3")
    assert graph.reads[1].tolist() == graph.writes[0].tolist()


def test_a_wait_for_a_view_is_one_for_what_it_shows_and_waits_for() -> None:
    nodes = [placeholder("x", [4]), node("a", "Relu", ["x"]), node("b", "Tanh", ["x"])]
    nodes += [node("v", "Identity", ["a", "^b"]), node("c", "Exp", ["x", "^v"]), node("d", "Exp", ["v"])]
    graph = TensorflowModel(GraphDef(nodes)).graph
    places = {name: op for op, name in enumerate(graph.op_names)}
    assert set(graph.after[places["c"]].tolist()) == {places["a"], places["b"]}
    assert set(graph.after[places["d"]].tolist()) == {places["b"]}


def test_writing_a_resource_comes_after_those_that_read_it_before_and_never_runs_twice() -> None:
    handle = NodeDef.make("v", "VarHandleOp", (), {"dtype": of_type(FLOAT), "shape": of_shape((8,))})
    read = NodeDef.make("r", "ReadVariableOp", ["v"], {"dtype": of_type(FLOAT), "_output_shapes": of_shapes([(8,)])})
    write = NodeDef.make("w", "AssignAddVariableOp", ["v", "x", "^a"], {"dtype": of_type(FLOAT)})
    graph = TensorflowModel(GraphDef([placeholder("x", [8]), handle, read, node("a", "Relu", ["r"], [8]), write])).graph
    assert graph.op_names == ("a", "w")
    assert graph.persistent_bytes() == {"device": 32}
    assert graph.mutates[1].tolist() == graph.reads[0].tolist()
    assert not graph.pure[1]


def test_a_reference_that_is_assigned_is_overwritten_and_handed_on() -> None:
    variable = NodeDef.make("v", "VariableV2", (), {"dtype": of_type(FLOAT), "shape": of_shape((8,))})
    assign = NodeDef.make("w", "Assign", ["v", "x"], {"T": of_type(FLOAT), "_output_shapes": of_shapes([(8,)])})
    graph = TensorflowModel(GraphDef([placeholder("x", [8]), variable, assign, node("a", "Relu", ["w"], [8])])).graph
    assert graph.mutates[0].tolist() == graph.reads[1].tolist()
    assert graph.n_buffers == 3


def test_only_what_is_asked_for_is_planned() -> None:
    model = TensorflowModel(chain(["Relu", "Tanh", "Exp"]), fetches=["n1"])
    assert model.graph.op_names == ("n0", "n1")
    fed = TensorflowModel(chain(["Relu", "Tanh", "Exp"]), feeds=["n0:0"], fetches=["n2:0"])
    assert fed.graph.op_names == ("n1", "n2")


def test_an_unmodified_graph_is_written_as_it_was_read(tmp_path: Path) -> None:
    graph = chain(["Relu", "Tanh"])
    content = graph.SerializeToString() + b"\x9a\x06\x03abc"  # a field that no GraphDef has
    (tmp_path / "a.pb").write_bytes(content)
    model = TensorflowModel(tmp_path / "a.pb")
    model.save(Plan.baseline(model.graph), tmp_path / "b.pb")
    assert (tmp_path / "b.pb").read_bytes() == content


def test_unknown_fields_of_nodes_and_graph_stay_in_a_changed_graph(tmp_path: Path) -> None:
    nodes = [placeholder("x", [8]), *(NodeDef(node(name, "Relu", ["x"]).piece + b"\x9a\x06\x03abc") for name in "ab")]
    (tmp_path / "a.pb").write_bytes(GraphDef(nodes).SerializeToString() + b"\x9a\x06\x03xyz")
    model = TensorflowModel(tmp_path / "a.pb")
    planned = model.apply(Plan.baseline(model.graph))
    assert planned.nodes[2].inputs == ["x", "^a"]
    assert planned.nodes[2].piece.startswith(bytes(nodes[2].piece))
    assert planned.SerializeToString().endswith(b"\x9a\x06\x03xyz")


TEXT = """# a graph
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "shape" value { shape { dim { size: 4 } dim { size: 8 } } } } }
node { name: "a" op: "Relu" input: "x" attr { key: "T" value { type: DT_FLOAT } }
  attr { key: "_output_shapes" value { list { shape { dim { size: 4 } dim { size: 8 } } } } } }
node { name: "b" op: "Tanh" input: "x" attr { key: "T" value { type: DT_FLOAT } }
  attr { key: "_output_shapes" value { list { shape { dim { size: 4 } dim { size: 8 } } } } } }
versions { producer: 1645 }
"""


def test_a_graph_in_text_is_read_and_written_as_one(tmp_path: Path) -> None:
    source, planned, binary = (tmp_path / name for name in ("a.pbtxt", "b.pbtxt", "b.pb"))
    source.write_text(TEXT)
    model = TensorflowModel(source)
    assert model.graph.sizes.tolist() == [128, 128, 128]
    plan = Plan.baseline(model.graph)
    model.save(plan, planned)
    model.save(plan, binary)
    assert '"^a"' in planned.read_text()
    assert "DT_FLOAT" in planned.read_text()
    again = [lowtide.read(path) for path in (planned, binary)]
    assert again[0].fingerprint == again[1].fingerprint != model.graph.fingerprint
    alone = tmp_path / "alone.pbtxt"
    alone.write_text(TEXT.replace('node { name: "b"', '# no b\nnode { name: "b"'))
    one = TensorflowModel(alone, fetches=["a"])
    one.save(Plan.baseline(one.graph), planned)
    assert planned.read_bytes() == alone.read_bytes()


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("DT_FLOAT", "DT_NONSENSE", "line 2"),
        ("producer: 1645", "producer: [", "line 8"),
        ("versions {", "novelty: 3 versions {", "novelty"),
        ('input: "x"', "input: x", "line 4"),
    ],
)
def test_what_is_wrong_with_a_text_is_said_in_one_line(tmp_path: Path, before: str, after: str, line: str) -> None:
    (tmp_path / "a.pbtxt").write_text(TEXT.replace(before, after))
    with pytest.raises(InputError, match=line):
        TensorflowModel(tmp_path / "a.pbtxt")


def test_what_a_meta_graph_wants_is_what_is_planned(tmp_path: Path) -> None:
    """The signature counts, or the collection "train_op"; all else of the file stays."""
    graph = encode_bytes(2, chain(["Relu", "Tanh", "Exp"]).SerializeToString())
    train_op = encode_bytes(4, encode_bytes(1, b"train_op") + encode_bytes(2, encode_bytes(1, encode_bytes(1, b"n1"))))
    output = encode_bytes(1, b"y") + encode_bytes(2, encode_bytes(1, b"n0:0"))
    signature = encode_bytes(5, encode_bytes(1, b"serve") + encode_bytes(2, encode_bytes(2, output)))
    path = tmp_path / "a.meta"
    path.write_bytes(graph + train_op + signature)
    assert TensorflowModel(path).graph.op_names == ("n0", "n1")
    assert TensorflowModel(path, signature="serve").graph.op_names == ("n0",)
    with pytest.raises(UsageError, match="it has serve"):
        TensorflowModel(path, signature="other")
    model = lowtide.open_model(path)
    model.save(Plan.baseline(model.graph), tmp_path / "b.pb")
    assert (tmp_path / "b.pb").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("nodes", "error", "line"),
    [
        ([], InputError, "no nodes"),
        ([node("a", "Relu", ["b"])], MalformedInputError, "node 'a' has input 'b', but there is no such node"),
        ([node("a", "Relu", ["b"]), node("b", "Relu", ["a"])], MalformedInputError, "2 nodes form a cycle"),
        ([node("a", "Relu", ["^a"])], MalformedInputError, "1 nodes form a cycle"),
        ([node("a", "NoOp", []), node("a", "NoOp", [])], MalformedInputError, "two nodes are named 'a'"),
        ([placeholder("x", [2]), node("a", "Relu", ["x:1"])], MalformedInputError, "reads output 1 of 'x'"),
        ([placeholder("x", [-1, 3])], UnsupportedError, "--dim x.0=SIZE"),
        ([placeholder("x", None)], UnsupportedError, "shapes={'x'"),
        ([placeholder("x", [2]), node("s", "Switch", ["x", "x"])], UnsupportedError, "control flow of TensorFlow 1"),
        (
            [node("m", "Merge", ["n"]), node("n", "NextIteration", ["m"])],
            UnsupportedError,
            "control flow of TensorFlow 1",
        ),
    ],
)
def test_what_is_wrong_with_a_graph_is_said_in_one_line(nodes: list[NodeDef], error: type, line: str) -> None:
    with pytest.raises(error) as refused:
        TensorflowModel(GraphDef(nodes))
    assert line in str(refused.value)


def test_control_flow_of_tensorflow_1_is_refused_where_it_is_needed_or_a_level_looks_at_it() -> None:
    nodes = [placeholder("x", [2]), node("a", "Relu", ["x"]), node("s", "Switch", ["a", "x"])]
    assert TensorflowModel(GraphDef(nodes), fetches=["a:0"]).graph.op_names == ("a",)
    for refused in (lambda: TensorflowModel(GraphDef(nodes)), lambda: optimize(GraphDef(nodes), fetches=["a:0"])):
        with pytest.raises(UnsupportedError, match=r"node 's' .Switch. is control flow of TensorFlow 1"):
            refused()


def test_lists_and_arrays_of_tensors_are_named_as_not_counted() -> None:
    """Their bytes are in no shape: variants, and the handles of arrays."""
    listed = node("l", "TensorListReserve", ["x", "x"], [], shape_type=of_type(3), element_dtype=of_type(FLOAT))
    array = NodeDef.make("t", "TensorArrayV3", ["x"], {"_output_shapes": of_shapes([(2,), ()])})
    whole = {"dtype": of_type(3), "shape": of_shape(())}
    graph = TensorflowModel(GraphDef([NodeDef.make("x", "Placeholder", (), whole), listed, array])).graph
    (note,) = graph.unmodeled
    assert note.startswith("2 outputs count as 0 bytes, being lists or arrays of tensors")


def test_an_unknown_op_keeps_its_place_and_is_named() -> None:
    graph = TensorflowModel(
        GraphDef([placeholder("x", [2]), node("a", "Mystery", ["x"]), node("b", "Relu", ["a"])])
    ).graph
    assert not graph.pure[0]
    assert graph.ordered[0]
    assert any("Mystery" in sentence for sentence in graph.unmodeled)


@pytest.mark.parametrize("request_", [{"fetches": ["q"]}, {"feeds": ["q:0"]}, {"shapes": {"q": [2]}}])
def test_names_that_the_graph_does_not_have_are_refused(request_: dict) -> None:
    with pytest.raises(UsageError, match="'q"):
        TensorflowModel(chain(["Relu"]), **request_)


def test_sizes_of_placeholders_are_bound_by_dims() -> None:
    nodes = [placeholder("x", [-1, 4]), node("a", "Relu", ["x"], [3, 4])]
    assert TensorflowModel(GraphDef(nodes), {"x.0": 3}).graph.sizes.tolist() == [48, 48]


def _function(name: str, *calls: str) -> bytes:
    """A function of x that calls others one after the other, or adds x to itself."""
    argument = encode_bytes(2, encode_bytes(1, b"x") + encode_number(3, FLOAT))
    result = encode_bytes(3, encode_bytes(1, b"y") + encode_number(3, FLOAT))
    pieces = [encode_bytes(1, encode_bytes(1, name.encode()) + argument + result)]
    last = "x"
    for number, called in enumerate(calls or ("AddV2",)):
        inputs = [last] if calls else [last, last]
        pieces.append(encode_bytes(3, node(f"n{number}", called, inputs).piece))
        last = f"n{number}:{'y' if calls else 'z'}:0"
    return b"".join((*pieces, encode_bytes(4, encode_bytes(1, b"y") + encode_bytes(2, last.encode()))))


def _calling(functions: list[bytes], called: str) -> GraphDef:
    library = encode_bytes(2, b"".join(encode_bytes(1, each) for each in functions))
    return GraphDef.parse(GraphDef([placeholder("x", [256]), node("c", called, ["x"])]).SerializeToString() + library)


def test_functions_are_graphs_that_ops_call_each_translated_once() -> None:
    """Fourteen levels that each call two of the next are fourteen subgraphs."""
    functions = [_function(f"f{k}", f"f{k + 1}", f"f{k + 1}") for k in range(14)] + [_function("f14")]
    graph = TensorflowModel(_calling(functions, "f0")).graph
    assert graph.op_kinds == ("call",)
    assert sorted(graph.subgraphs) == sorted(f"f{k}" for k in range(15))
    assert lowtide.minimize(graph).peak_bytes["device"] == 2 * 1024 + 14 * 1024


def test_a_plan_of_ops_with_outputs_of_unknown_types_can_be_applied() -> None:
    """Types are needed only for copies to a host, which name the op that has none."""
    graph = GraphDef([placeholder("x", [256]), node("a", "Mystery", ["x"]), node("b", "Relu", ["a"])])
    for model in (TensorflowModel(_calling([_function("f", "g"), _function("g")], "f")), TensorflowModel(graph)):
        planned = model.apply(Plan.baseline(model.graph))
        assert TensorflowModel(planned).graph.n_ops == model.graph.n_ops


def test_a_copy_to_a_host_of_an_output_of_an_unknown_type_is_refused() -> None:
    called = _calling([_function("f")], "f")
    graph = called.with_nodes([*called.nodes, node("a", "Relu", ["x"]), node("b", "AddV2", ["a", "c"])])
    model = TensorflowModel(graph).with_host(Host(bandwidth_bytes_per_s=1e9))
    (buffer,) = model.graph.writes[0].tolist()
    host = [space.name for space in model.graph.spaces].index("host")
    stay: list[Step] = [CopyOut(buffer, host), Free(buffer)]
    back: list[Step] = [CopyIn(buffer, host), Free(buffer, host)]
    plan = plan_of_runs(model.graph, [0, 1, 2], before={2: back}, after={0: stay})
    with pytest.raises(UnsupportedError, match="the type of output 0 of 'c' is unknown; plan without offload"):
        model.apply(plan)


def test_a_function_that_calls_itself_is_refused_in_one_line() -> None:
    with pytest.raises(UnsupportedError, match="calls itself"):
        TensorflowModel(_calling([_function("f", "g"), _function("g", "f")], "f"))


def test_contents_of_constants_are_neither_read_nor_copied(tmp_path: Path) -> None:
    size = 2**24
    dims = encode_field("TensorShapeProto", "dim", encode_field("Dim", "size", size // 4))
    pieces = (("dtype", FLOAT), ("tensor_shape", dims), ("tensor_content", bytes(size)))
    tensor = b"".join(encode_field("TensorProto", name, value) for name, value in pieces)
    shape = {"dtype": of_type(FLOAT), "value": encode_field("AttrValue", "tensor", tensor)}
    nodes = [NodeDef.make("w", "Const", (), shape), placeholder("x", [size // 4])]
    nodes += [node(name, "AddV2", ["x", "w"], [size // 4]) for name in "ab"]
    (tmp_path / "a.pb").write_bytes(GraphDef(nodes).SerializeToString())
    tracemalloc.start()
    model = TensorflowModel(tmp_path / "a.pb")
    model.save(Plan.baseline(model.graph), tmp_path / "b.pb")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < size // 8
    assert model.graph.persistent_bytes() == {"device": size}
    assert (tmp_path / "b.pb").stat().st_size > size


def test_a_gzipped_file_is_read_like_a_plain_one(tmp_path: Path) -> None:
    content = GraphDef([NodeDef.make("x", "Placeholder", (), {"dtype": of_type(1), "shape": of_shape([4])})])
    (tmp_path / "a.pb").write_bytes(content.SerializeToString())
    (tmp_path / "b.pb").write_bytes(gzip.compress(content.SerializeToString()))
    plain, zipped = (lowtide.read(tmp_path / name) for name in ("a.pb", "b.pb"))
    assert plain.fingerprint == zipped.fingerprint


def test_what_only_a_level_looks_at_is_named_with_its_file_when_it_is_broken(tmp_path: Path) -> None:
    attributes = {"dtype": of_type(1), "shape": of_shape([4]), "_swap_to_host": b"\x0a\x7f"}
    broken = NodeDef.make("x", "Placeholder", (), attributes)
    (tmp_path / "a.pb").write_bytes(GraphDef([broken]).SerializeToString())
    with pytest.raises(MalformedInputError, match=r"a\.pb: invalid message at byte"):
        optimize(tmp_path / "a.pb", "manual")


def test_damaged_files_give_a_graph_or_one_line(tmp_path: Path) -> None:
    """Every file is cut, or has some bytes changed."""
    binary = GraphDef([*chain(["Relu", "Tanh"]).nodes, node("c", "Concat", ["n0", "n1"])]).SerializeToString()
    rng = random.Random(5)
    path = tmp_path / "a.pb"
    lines: list[str] = []
    for case in range(300):
        content = TEXT.encode() if case % 4 == 0 else binary
        damaged = bytearray(content[: rng.randrange(1, len(content))] if case % 3 == 0 else content)
        for _ in range(case % 3):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            lowtide.minimize(TensorflowModel(path).graph)
        except LowtideError as error:
            lines.append(str(error))
    assert len(lines) > 100
    assert not any("\n" in line for line in lines)
