"""What the stock runtime is said to take is what it takes: reuse and pattern to the byte, the arena by the page."""

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from lowtide import minimize
from lowtide.engine.analysis import Problem
from lowtide.frameworks.onnx.loading.load import load_model
from lowtide.frameworks.onnx.model import OnnxModel
from lowtide.frameworks.onnx.reading.translate import read_model
from lowtide.frameworks.onnx.running.children import measure_in_child
from lowtide.frameworks.onnx.running.levels import quiet_options, write_optimized
from lowtide.frameworks.onnx.stock.arena import StockArena
from lowtide.frameworks.onnx.stock.default_order import default_order_of
from lowtide.frameworks.onnx.stock.frames import StockFrame
from lowtide.frameworks.onnx.stock.stock_graph import StockBytes, StockGraph
from tests.frameworks.onnx.stock.recorded import recorded


def _predicted(path: Path) -> StockBytes:
    model = load_model(path)
    return StockGraph(model.graph, read_model(model, {}, path.name)).in_own_order()


def _peak(rows: Any) -> int:
    changes = [(made, size) for size, made, _ in rows.tolist()]
    changes += [(freed, -size) for size, _, freed in rows.tolist() if freed >= 0]
    return int(np.cumsum([change for _, change in sorted(changes)]).max(initial=0))


def _net() -> onnx.ModelProto:
    """Give a net of squares in four shapes, whose values die at different times, with a softmax that works in place."""
    generator = np.random.default_rng(0)
    nodes, weights = [helper.make_node("Exp", ["x"], ["v0"])], []
    width = 256
    for number in range(16):
        wider = (256, 384, 512, 320)[number % 4]
        weight = generator.normal(0, 0.1, (width, wider)).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{number}"))
        kind = ("Sin", "Softmax", "Relu", "Sqrt")[number % 3]
        nodes.append(helper.make_node("MatMul", [f"v{number}", f"w{number}"], [f"m{number}"]))
        nodes.append(helper.make_node(kind, [f"m{number}"], [f"k{number}"]))
        nodes.append(helper.make_node("Mul", [f"k{number}", f"k{number}"], [f"v{number + 1}"]))
        width = wider
    nodes.append(helper.make_node("Concat", ["v4", "v8", "v12", "v16"], ["all"], axis=1))
    nodes.append(helper.make_node("Sin", ["all"], ["y"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2048, 256])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _net_of_unknown_shapes() -> onnx.ModelProto:
    """Give a net whose values get their shape from what another one's was, which the runtime learns as it runs."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Slice", ["shape", "start", "end"], ["rows"]),
        helper.make_node("Concat", ["rows", "rest"], ["flat"], axis=0),
        helper.make_node("Reshape", ["x", "flat"], ["v0"]),
        helper.make_node("Exp", ["v0"], ["early"]),
        helper.make_node("Concat", ["early", "early"], ["twice"], axis=0),
        helper.make_node("Concat", ["twice", "twice"], ["four"], axis=0),
        helper.make_node("Slice", ["four", "start", "half"], ["late"]),
        helper.make_node("Mul", ["late", "late"], ["squared"]),
        helper.make_node("ReduceSum", ["squared"], ["y"], keepdims=0),
    ]
    weights = [
        numpy_helper.from_array(np.array([value]), name) for name, value in (("start", 0), ("end", 1), ("half", 64))
    ]
    weights.append(numpy_helper.from_array(np.array([-1]), "rest"))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 32, 32])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "unknown", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_file_that_the_runtime_leaves_alone_runs_in_its_default_order(tmp_path: Path) -> None:
    """Optimizations write a file in the order in which it runs only where they change it."""
    branches = range(8)
    grow = [helper.make_node("Concat", ["x"] * 8, [f"large{k}"], axis=0) for k in branches]
    shrink = [helper.make_node("ReduceMax", [f"large{k}"], [f"small{k}"], keepdims=0) for k in branches]
    total = helper.make_node("Sum", [f"small{k}" for k in branches], ["y"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 1024])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [])
    graph = helper.make_graph([*grow, *shrink, total], "branches", [x], [y])
    given = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(given, tmp_path / "given.onnx")
    model = OnnxModel(tmp_path / "given.onnx").optimized("none")
    peaks = model.runtime_peaks(minimize(model.graph).plan)
    assert model.graph.op_names[1].startswith("Concat")
    assert peaks.before_bytes == peaks.after_bytes < 3 * 8 * 64 * 1024 * 4


def test_a_value_whose_shape_only_a_run_tells_takes_over_no_storage(tmp_path: Path) -> None:
    """The runtime plans reuse when it loads a model: what it does not know then has storage of its own."""
    onnx.save(_net_of_unknown_shapes(), tmp_path / "given.onnx")
    predicted = _predicted(tmp_path / "given.onnx")
    assert predicted.reuse_bytes == _peak(recorded(tmp_path / "given.onnx", pattern=False)[-1])


@pytest.mark.parametrize("name", ["conv_net", "net"])
def test_reuse_and_pattern_are_predicted_to_the_byte(name: str, cases: dict[str, Any], tmp_path: Path) -> None:
    """The most that one run allocates, and the block of the next, are what the runtime asks an allocator for."""
    path = tmp_path / "given.onnx"
    onnx.save(_net() if name == "net" else cases[name].make(), path)
    write_optimized(path, quiet_options("none"), tmp_path / "runs.onnx")
    predicted = _predicted(tmp_path / "runs.onnx")
    assert predicted.reuse_bytes == _peak(recorded(tmp_path / "runs.onnx", pattern=False)[-1])
    assert predicted.pattern_bytes in recorded(tmp_path / "runs.onnx", pattern=True)[-1][:, 0]


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read as Linux tells it")
def test_the_stock_runtime_grows_as_predicted(tmp_path: Path) -> None:
    """Pages of the arena, its table, and what a pattern adds are what resident memory grows by, within 2 %."""
    onnx.save(_net(), tmp_path / "net.onnx")
    write_optimized(tmp_path / "net.onnx", quiet_options("none"), tmp_path / "runs.onnx")
    measured = measure_in_child(tmp_path / "runs.onnx", {}, planned=False, level="none", runs=4, threads=1)
    assert measured.growth_bytes is not None
    predicted = _predicted(tmp_path / "runs.onnx")
    assert abs(predicted.resident_bytes - measured.growth_bytes) <= 0.02 * measured.growth_bytes
    assert predicted.reuse_bytes < predicted.pattern_bytes + predicted.reuse_bytes // 4 < predicted.resident_bytes


def test_the_pattern_and_the_arena_cost_more_than_the_order(tmp_path: Path) -> None:
    """Live bytes in an order are a lower bound of all that the runtime allocates in it."""
    onnx.save(_net(), tmp_path / "net.onnx")
    model = load_model(tmp_path / "net.onnx")
    translation = read_model(model, {}, "net")
    predicted = StockGraph(model.graph, translation, in_running_order=True).in_own_order()
    inputs = 2048 * 256 * 4
    given = Problem(translation.graph)
    assert predicted.order_bytes == given.evaluate(given.given_order()).peaks.sum()
    assert predicted.order_bytes - inputs <= predicted.reuse_bytes <= predicted.resident_bytes


@given(st.lists(st.tuples(st.integers(1, 3 * 2**20), st.integers(0, 5)), max_size=40))
def test_chunks_of_the_arena_never_overlap(steps: list[tuple[int, int]]) -> None:
    """Whatever is taken and given back, live chunks lie apart, and all that they cover was touched."""
    arena = StockArena()
    live: list[Any] = []
    pages = set[tuple[int, int]]()
    for size, number in steps:
        if number < len(live):
            arena.release(live.pop(number))
        chunk = arena.allocate(size)
        live.append(chunk)
        touched = range(chunk.offset // 4096, -(-(chunk.offset + size) // 4096))
        pages.update((chunk.region, page) for page in touched)
        assert arena.resident_bytes == 4096 * len(pages) + arena.reserved_bytes // 32
        ends = sorted((chunk.region, chunk.offset, chunk.offset + chunk.size) for chunk in live)
        assert all(one[0] != two[0] or one[2] <= two[1] for one, two in pairwise(ends))
    for chunk in live:
        arena.release(chunk)
    assert arena.resident_bytes <= arena.reserved_bytes * 33 // 32 + 4096
    before = arena.reserved_bytes
    if before:
        arena.release(arena.allocate(2**20))
        assert arena.reserved_bytes == before  # all is in one piece again


@pytest.mark.parametrize(("ascends", "region"), [(False, 1), (True, 0)])
def test_of_free_chunks_of_one_size_that_at_the_lowest_address_is_taken(ascends: bool, region: int) -> None:
    """Where regions lie is the system's choice."""
    arena = StockArena(ascends=ascends)
    for chunk in [arena.allocate(2**21) for _ in range(2)]:
        arena.release(chunk)
    assert arena.allocate(2**21).region == region


def test_blocks_that_no_machine_holds_are_modeled_like_others() -> None:
    """The model itself needs no memory for the pages that it counts."""
    arena = StockArena()
    arena.release(arena.allocate(2**60))
    assert arena.resident_bytes == 2**60 + 2**60 // 32


def _net_of_scalars() -> onnx.ModelProto:
    """Give a net that resizes by the sizes of others, which are taken out of shapes number by number."""
    nodes: list[onnx.NodeProto] = []
    for number in range(3):
        source = f"v{number}"
        nodes += [
            helper.make_node("Exp", [source], [f"e{number}"]),
            helper.make_node("Shape", [f"e{number}"], [f"one{number}"]),
            helper.make_node("Shape", [source], [f"other{number}"]),
            helper.make_node("Gather", [f"one{number}", "zero"], [f"rows{number}"]),
            helper.make_node("Gather", [f"other{number}", "zero"], [f"again{number}"]),
            helper.make_node("Add", [f"rows{number}", f"again{number}"], [f"both{number}"]),
            helper.make_node("Unsqueeze", [f"both{number}", "axis"], [f"first{number}"]),
            helper.make_node("Concat", [f"first{number}", "rest"], [f"flat{number}"], axis=0),
            helper.make_node("Concat", [f"e{number}", source], [f"all{number}"], axis=0),
            helper.make_node("Reshape", [f"all{number}", f"flat{number}"], [f"v{number + 1}"]),
        ]
    nodes.append(helper.make_node("Neg", ["v3"], ["y"]))
    numbers = {"zero": np.array(0), "axis": np.array([0]), "rest": np.array([32])}
    weights = [numpy_helper.from_array(array, name) for name, array in numbers.items()]
    x = helper.make_tensor_value_info("v0", TensorProto.FLOAT, [64, 32])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "scalars", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_shapes_are_taken_where_they_stand_and_scalars_take_over_nothing(tmp_path: Path) -> None:
    """The blocks that a run makes are those of the runtime, one after the other, down to single numbers."""
    path = tmp_path / "given.onnx"
    onnx.save(_net_of_scalars(), path)
    model = load_model(path)
    translation = read_model(model, {}, path.name)
    run = StockFrame(translation, model.graph).allocations(default_order_of(model.graph))
    predicted = [run.sizes[block] for block, made in run.events if made]
    rows = recorded(path, pattern=False)[-1].tolist()
    assert predicted == [size for size, _, _ in sorted(rows, key=lambda row: row[1])]
