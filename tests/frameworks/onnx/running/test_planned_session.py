"""Sessions at planned addresses: the bits of the stock runtime's, whatever shapes, threads and lives come."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import lowtide
from lowtide.core.errors import UsageError
from lowtide.frameworks.onnx import model as model_module
from lowtide.frameworks.onnx.running.inputs import random_inputs
from lowtide.onnx import OnnxModel, Pool, Session


def _stock(model: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _same(some: Any, others: Any) -> bool:
    return all(
        np.asarray(one).tobytes() == np.asarray(other).tobytes() for one, other in zip(some, others, strict=True)
    )


def _chain(n: int = 12, size: int | str = "n") -> onnx.ModelProto:
    """Give a chain of adds over a vector, by default of any length, whose values all feed one sum at the end."""
    nodes = [helper.make_node("Exp", ["x"], ["v0"])]
    nodes += [helper.make_node("Sin", [f"v{i}"], [f"v{i + 1}"]) for i in range(n)]
    nodes.append(helper.make_node("Sum", [f"v{i}" for i in range(0, n + 1, 3)], ["y"]))
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [size]) for name in "xy"]
    graph = helper.make_graph(nodes, "chain", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _inputs(size: int, seed: int = 0) -> dict[str, Any]:
    return {"x": np.random.default_rng(seed).standard_normal(size).astype(np.float32)}


def test_every_run_after_the_first_is_served(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outputs are the stock runtime's bit for bit, the first run teaches, and static models never fall back."""
    monkeypatch.setattr(model_module, "_LEAST_PLACED_BYTES", 0)
    model = case.make()
    inputs = random_inputs(model, case.dims)
    expected = _stock(model).run(None, inputs)
    session = Session(model.SerializeToString())
    assert all(_same(session.run(None, inputs), expected) for _ in range(4))
    assert (session.use.recorded, session.use.served, dict(session.use.fallbacks)) == (1, 3, {})
    assert session.arena.live_blocks == 0


def test_every_shape_has_addresses_of_its_own() -> None:
    """Shapes may come in any order; the arena has the size of the largest."""
    model = _chain()
    session, stock = Session(model.SerializeToString()), _stock(model)
    sizes = [1000, 10, 5000, 10, 1000, 5000]
    arenas: list[int] = []
    for size in sizes * 2:
        assert _same(session.run(None, _inputs(size)), stock.run(None, _inputs(size)))
        arenas.append(session.arena.size_bytes)
    assert (session.use.recorded, session.use.served, dict(session.use.fallbacks)) == (3, 9, {})
    assert arenas == sorted(arenas)
    assert 5 * 5000 * 4 <= arenas[-1] <= 8 * 5000 * 4


def test_a_run_whose_sizes_depend_on_data_falls_back_and_says_so() -> None:
    """What NonZero finds decides sizes; every result is right, and the runs that went elsewhere are counted."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("NonZero", ["r"], ["found"]),
        helper.make_node("Cast", ["found"], ["f"], to=1),
        helper.make_node("Exp", ["f"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [20000])]
    outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, None])]
    graph = helper.make_graph(nodes, "found", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session, stock = Session(model.SerializeToString()), _stock(model)
    for seed in range(12):
        assert _same(session.run(None, _inputs(20000, seed)), stock.run(None, _inputs(20000, seed)))
    use = session.use
    assert use.recorded + use.served + use.fallbacks.total() == 12
    assert use.fallbacks["other size"] > 0
    assert use.recorded <= 4


@pytest.mark.parametrize(("size", "is_placed"), [(500, False), (100_000, True), ("n", True)])
@pytest.mark.parametrize("is_planned_before", [False, True])
def test_small_models_of_fixed_sizes_run_by_the_methods_of_the_stock_session(
    size: int | str, is_placed: bool, is_planned_before: bool, tmp_path: Path
) -> None:
    """All others are placed, since sizes of later runs are unknown. The bits are the same."""
    model = _chain(size=size)
    content, inputs = model.SerializeToString(), _inputs(1000 if isinstance(size, str) else size)
    if is_planned_before:
        read = OnnxModel(model, {"n": 1000} if isinstance(size, str) else None)
        read.save(lowtide.minimize(read.graph).plan, tmp_path / "planned.onnx")
        content = (tmp_path / "planned.onnx").read_bytes()
    session, expected = Session(content), _stock(model).run(None, inputs)
    assert all(_same(session.run(None, inputs), expected) for _ in range(2))
    assert (type(session).run is Session.run) == is_placed
    assert (session.use.recorded, session.use.served) == ((1, 1) if is_placed else (0, 0))
    assert session.unplanned is None
    assert _same(_by_binding(session, inputs), expected)


def test_results_outlive_the_run_and_the_session() -> None:
    """What the caller keeps is never overwritten by later runs, nor freed with the session."""
    model = _chain()
    session, stock = Session(model.SerializeToString()), _stock(model)
    kept = [(seed, session.run(None, _inputs(3000, seed))[0]) for seed in range(5)]
    del session
    gc.collect()
    assert all(_same([result], stock.run(None, _inputs(3000, seed))) for seed, result in kept)


def _large_result() -> onnx.ModelProto:
    """Give a net whose result is made when most of its arena lies idle."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Concat", ["a", "a", "a"], ["b"], axis=0),
        helper.make_node("Sin", ["b"], ["c"]),
        helper.make_node("ReduceMax", ["c"], ["d"], axes=[0]),
        helper.make_node("Concat", ["d", "d"], ["y"], axis=0),
    ]
    values = [value("x", onnx.TensorProto.FLOAT, [1, 2**16]), value("y", onnx.TensorProto.FLOAT, [2, 2**16])]
    graph = helper.make_graph(nodes, "large", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.skipif(sys.platform != "linux", reason="pages are lent where the system can move them")
def test_results_are_made_in_pages_that_the_arena_lends() -> None:
    """Kept results keep their bits through later runs and beyond the session, and no run falls back."""
    model = _large_result()
    session, stock = Session(model.SerializeToString()), _stock(model)
    feeds = [{"x": np.random.default_rng(seed).standard_normal((1, 2**16)).astype(np.float32)} for seed in range(8)]
    expected = [stock.run(None, feed) for feed in feeds]
    kept = [session.run(None, feed) for feed in feeds[:4]]
    for number, feed in enumerate(feeds):
        assert _same(session.run(None, feed), expected[number])  # let go of before the next
        if number % 3 == 0:
            kept.pop()
    assert all(_same(some, others) for some, others in zip(kept, expected, strict=False))
    assert session.reserved_bytes == session.arena.size_bytes
    assert dict(session.use.fallbacks) == {}
    assert session.arena.trim()
    del session
    gc.collect()
    assert all(_same(some, others) for some, others in zip(kept, expected, strict=False))


def _reshaping() -> onnx.ModelProto:
    """Give a net that fails in the middle where the shape that it is fed does not hold its 100 elements."""
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("Sin", ["b"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [100]),
        helper.make_tensor_value_info("shape", onnx.TensorProto.INT64, [2]),
    ]
    outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, None])]
    graph = helper.make_graph(nodes, "broken", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_an_exception_in_the_middle_leaves_everything_as_it_was() -> None:
    """A run that fails frees its blocks, is not learned from, and the next is right."""
    model = _reshaping()
    session = Session(model.SerializeToString())
    for shape in ([10, 10], [7, 7], [4, 25], [3, 3], [10, 10]):
        feed = {**_inputs(100), "shape": np.array(shape)}
        if shape[0] * shape[1] == 100:
            (result,) = session.run(None, feed)
            assert result.shape == tuple(shape)
            assert np.allclose(result.ravel(), np.sin(np.exp(feed["x"])))
        else:
            with pytest.raises(Exception, match="Reshape"):
                session.run(None, feed)
    assert session.arena.live_blocks == 0
    assert not session.use.fallbacks


def test_bound_results_and_values_of_the_runtime_work_as_ever() -> None:
    """IOBinding with results of the caller's and of the runtime's, and OrtValues, give the same bits."""
    model = _chain()
    session, stock = Session(model.SerializeToString()), _stock(model)
    results: list[Any] = []
    for seed in range(4):
        inputs = _inputs(2000, seed)
        expected = stock.run(None, inputs)
        binding = session.io_binding()
        binding.bind_cpu_input("x", inputs["x"])
        target = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(2000, np.float32))
        if seed % 2:
            binding.bind_ortvalue_output("y", target)
        else:
            binding.bind_output("y")
        session.run_with_iobinding(binding)
        assert _same(binding.copy_outputs_to_cpu(), expected)
        value = onnxruntime.OrtValue.ortvalue_from_numpy(inputs["x"])
        results.append((session.run_with_ort_values(None, {"x": value}), expected))
    assert all(_same([got[0].numpy()], expected) for got, expected in results)
    assert session.use.served > 0


def test_a_pool_has_the_arena_of_its_largest_session() -> None:
    """Sessions one after the other share every byte, and giving the pages back harms nobody."""
    pool = Pool()
    models = [_chain(3 * n) for n in range(1, 6)]
    sessions = [pool.open(model.SerializeToString()) for model in models]
    expected = [_stock(model).run(None, _inputs(4000)) for model in models]
    alone: list[int] = []
    for model in models:
        session = Session(model.SerializeToString())
        for _ in range(2):
            session.run(None, _inputs(4000))
        alone.append(session.arena.size_bytes)
    for _ in range(3):
        assert all(
            _same(session.run(None, _inputs(4000)), results)
            for session, results in zip(sessions, expected, strict=True)
        )
        assert pool.trim()
    assert pool.sessions == tuple(sessions)
    assert pool.arena_bytes == max(alone)
    assert all(session.use.served == 2 and not session.use.fallbacks for session in sessions)


def _by_binding(session: Session, inputs: dict[str, Any]) -> list[Any]:
    """Run with inputs and results bound, and return the results."""
    binding = session.io_binding()
    binding.bind_cpu_input("x", inputs["x"])
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()


@pytest.mark.share_of_cases
@pytest.mark.parametrize("seed", range(2))
def test_anything_at_once_is_right(seed: int, case: Any) -> None:
    """Four threads run sessions of one pool with random shapes and keep random results: every one is right.

    Some runs bind their results, some fail in the middle, and some sessions go while their results are kept.
    """
    model = _chain()
    other = case.make()
    other_inputs = random_inputs(other, case.dims)
    stock, other_expected = _stock(model), _stock(other).run(None, other_inputs)
    pool = Pool()
    sessions = [pool.open(model.SerializeToString()) for _ in range(2)]
    third, failing = pool.open(other.SerializeToString()), pool.open(_reshaping().SerializeToString())

    def drive(number: int) -> bool:
        random = Random(10 * seed + number)
        kept: list[tuple[Any, Any]] = []
        for _ in range(16):
            inputs = _inputs(random.choice((10, 3000, 90_000)), random.randrange(5))
            match random.choice(("run", "run", "run", "other", "other", "bind", "fail", "new")):
                case "run":
                    kept.append((random.choice(sessions).run(None, inputs), stock.run(None, inputs)))
                case "other":
                    kept.append((third.run(None, other_inputs), other_expected))
                case "bind":
                    kept.append((_by_binding(random.choice(sessions), inputs), stock.run(None, inputs)))
                case "fail":
                    with pytest.raises(Exception, match="Reshape"):
                        failing.run(None, {**_inputs(100), "shape": np.array([7, 7])})
                case _:
                    kept.append((pool.open(model.SerializeToString()).run(None, inputs), stock.run(None, inputs)))
            if kept and random.random() < 0.5:
                kept.pop(random.randrange(len(kept)))
        return all(_same(*pair) for pair in kept)

    with ThreadPoolExecutor(4) as threads:
        assert all(done.result() for done in [threads.submit(drive, number) for number in range(4)])
    gc.collect()
    assert sessions[0].arena.live_blocks == 0


def test_parallel_execution_is_refused() -> None:
    """Its allocations come in another order every time."""
    options = onnxruntime.SessionOptions()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    with pytest.raises(UsageError, match="sequential"):
        Session(_chain().SerializeToString(), options)
