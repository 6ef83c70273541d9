"""Models whose largest values are computed in chunks: planned, written, run, with less memory and equal bits."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import lowtide
from lowtide.engine.graph import Graph
from lowtide.engine.plan import verify, write_plan_file
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.plan_file import read_plan
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.onnx.running.children import measure_in_child
from lowtide.onnx import OnnxModel
from tests.frameworks.onnx.conftest import integers, model_of, node, value, weight

MIB = 2**20
TIGHT = "30%"
TOKENS, WIDTH, WORDS = 256, 64, 8000


def language_model() -> ModelProto:
    """Give the head of a language model: scores for every word, of which the best and its logarithm are returned."""
    nodes = [
        node("Gather", "table tokens", "embedded", name="embed"),
        node("LayerNormalization", "embedded scale", "normal", axis=-1, name="norm"),
        node("MatMul", "normal head", "logits", name="logits"),
        node("LogSoftmax", "logits", "logarithms", axis=-1, name="softmax"),
        node("ReduceMax", "logarithms", "best", axes=[-1], keepdims=0, name="best"),
        node("ArgMax", "logarithms", "word", axis=-1, keepdims=0, name="word"),
    ]
    weights = [weight("table", 100, WIDTH), weight("scale", WIDTH), weight("head", WIDTH, WORDS)]
    outputs = [value("best", [1, TOKENS]), value("word", [1, TOKENS], TensorProto.INT64)]
    tokens = [value("tokens", [1, TOKENS], TensorProto.INT64)]
    return model_of(helper.make_graph(nodes, "language_model", tokens, outputs, weights))


def attention() -> ModelProto:
    """Give two layers of attention over 4 heads: each head's scores are as large as all else."""
    nodes, weights = [], [integers("heads", 1, 384, 4, 16), integers("joined", 1, 384, 64)]
    source = "x"
    for layer in "01":
        names = {each: f"{each}{layer}" for each in ("q", "k", "v")}
        for each, name in names.items():
            weights.append(weight(f"w{name}", 64, 64))
            turn = [0, 2, 3, 1] if each == "k" else [0, 2, 1, 3]
            nodes += [
                node("MatMul", f"{source} w{name}", name),
                node("Reshape", f"{name} heads", f"{name}.heads"),
                node("Transpose", f"{name}.heads", f"{name}.turned", perm=turn),
            ]
        nodes += [
            node("MatMul", f"q{layer}.turned k{layer}.turned", f"scores{layer}"),
            node("Softmax", f"scores{layer}", f"shares{layer}", axis=-1),
            node("MatMul", f"shares{layer} v{layer}.turned", f"mixed{layer}"),
            node("Transpose", f"mixed{layer}", f"turned{layer}", perm=[0, 2, 1, 3]),
            node("Reshape", f"turned{layer} joined", f"joined{layer}"),
            node("Add", f"joined{layer} {source}", f"x{layer}"),
        ]
        source = f"x{layer}"
    shape = [1, 384, 64]
    return model_of(helper.make_graph(nodes, "attention", [value("x", shape)], [value(source, shape)], weights))


def images() -> ModelProto:
    """Give a stack of convolutions with a sum around one of them, over a batch."""
    nodes = [
        node("Conv", "image w0", "c0", pads=[1, 1, 1, 1]),
        node("Relu", "c0", "r0"),
        node("Conv", "r0 w1", "c1", pads=[1, 1, 1, 1]),
        node("Add", "c1 r0", "sum"),
        node("GlobalAveragePool", "sum", "pooled"),
        node("Flatten", "pooled", "flat"),
        node("Gemm", "flat w2", "scores"),
    ]
    weights = [weight("w0", 16, 3, 3, 3), weight("w1", 16, 16, 3, 3), weight("w2", 16, 5)]
    graph = helper.make_graph(nodes, "images", [value("image", [8, 3, 48, 48])], [value("scores", [8, 5])], weights)
    return model_of(graph)


def least_peak_bytes(graph: Graph) -> int:
    """Return what the best order of a graph needs."""
    return sum(lowtide.minimize(graph).peak_bytes.values())


def test_chunks_take_time_and_are_for_budgets_alone() -> None:
    model = OnnxModel(language_model())
    assert plan_best_form(model, PlanSettings()).graph is model.graph
    assert plan_best_form(model, PlanSettings(budget=TIGHT)).graph is model.in_chunks


@pytest.mark.parametrize(("make", "most"), [(language_model, 0.2), (attention, 0.4), (images, 0.3)])
def test_regions_at_the_peak_are_computed_in_chunks_with_equal_bits(
    make: Callable[[], ModelProto], most: float
) -> None:
    model = OnnxModel(make())
    result = plan_best_form(model, PlanSettings(budget=TIGHT))
    graph = result.graph
    assert graph is model.in_chunks
    assert sum(result.peak_bytes.values()) < most * sum(result.baseline_peak_bytes.values())
    measured = model.measure(result.plan)
    assert measured.outputs_equal
    assert measured.before_bytes == sum(result.baseline_peak_bytes.values())
    assert measured.after_bytes == sum(result.peak_bytes.values())
    assert model.left_whole() == ()


def test_a_budget_that_only_more_chunks_meet_is_met_and_its_plan_read_again(tmp_path: Path) -> None:
    model = OnnxModel(language_model())
    assert model.in_chunks is not None
    asked = least_peak_bytes(model.in_chunks) // 2
    result = plan_best_form(model, PlanSettings(budget=asked, transient=True))
    graph = result.graph
    assert result.shortfall is None
    assert graph is model.in_finer_chunks
    assert model.measure(result.plan).after_bytes == sum(result.peak_bytes.values()) <= asked
    write_plan_file(result.plan, tmp_path / "p.plan.json", graph)
    again = OnnxModel(language_model())
    assert read_plan(tmp_path / "p.plan.json", again)[0].graph.fingerprint == graph.fingerprint


def test_where_no_number_of_chunks_meets_a_budget_the_least_of_all_forms_is_said() -> None:
    model = OnnxModel(language_model())
    result = plan_best_form(model, PlanSettings(budget=1000, transient=True))
    graph = result.graph
    assert graph is model.in_finer_chunks
    assert model.in_chunks is not None
    assert result.shortfall is not None
    assert sum(result.peak_bytes.values()) < least_peak_bytes(model.in_chunks)


def test_a_session_of_a_planned_language_model_grows_by_less(tmp_path: Path) -> None:
    given, planned = tmp_path / "given.onnx", tmp_path / "planned.onnx"
    onnx.save(language_model(), given)
    model = OnnxModel(given).optimized("basic")
    result = plan_best_form(model, PlanSettings(budget=TIGHT))
    model.save(result.plan, planned)
    stock = measure_in_child(given, {}, planned=False, threads=1)
    ours = measure_in_child(planned, {}, planned=True, threads=1)
    assert stock.growth_bytes is not None
    assert ours.growth_bytes is not None
    assert ours.growth_bytes < stock.growth_bytes / 3
    assert ours.digest == stock.digest
    assert ours.fallbacks == 0


def test_what_gives_other_bits_is_left_whole_and_named() -> None:
    # Elements that fill no vector register go through other code: where a row ends is an ordinary place of both rows.
    width = 300_001
    nodes = [
        node("Mul", "x w", "product"),
        node("Softplus", "product", "soft"),
        node("Slice", "soft from to along", "end", name="end"),
    ]
    weights = [weight("w", width), integers("from", width - 64), integers("to", width), integers("along", 1)]
    model = OnnxModel(
        model_of(helper.make_graph(nodes, "rows", [value("x", [2, 1])], [value("end", [2, 64])], weights))
    )
    graph = plan_best_form(model, PlanSettings(budget=TIGHT)).graph
    assert graph is model.graph
    assert model.left_whole() == ("node 'end' (Slice): no number of chunks tried gives equal bits",)


def test_a_model_of_dynamic_sizes_is_left_whole_and_says_so() -> None:
    dynamic = language_model()
    for described in (*dynamic.graph.input, *dynamic.graph.output):
        described.type.tensor_type.shape.dim[1].dim_param = "tokens"
    model = OnnxModel(dynamic, {"tokens": TOKENS})
    assert plan_best_form(model, PlanSettings(budget=TIGHT)).graph is model.graph
    assert "fixed sizes" in model.left_whole()[0]


def test_weights_in_other_files_stay_there(tmp_path: Path) -> None:
    path, planned = tmp_path / "given.onnx", tmp_path / "planned.onnx"
    onnx.save(language_model(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    model = OnnxModel(path)
    result = plan_best_form(model, PlanSettings(budget=TIGHT))
    graph = result.graph
    assert graph is model.in_chunks
    model.save(result.plan, planned)
    assert planned.stat().st_size < MIB
    again = OnnxModel(planned)
    assert sum(again.graph.sizes) < sum(model.graph.sizes)


def test_a_plan_for_chunks_is_one_of_the_program_in_chunks() -> None:
    model = OnnxModel(language_model())
    result = plan_best_form(model, PlanSettings(budget=TIGHT))
    graph = result.graph
    verify(graph, result.plan)
    assert all(claim.in_chunks for claim in result.plan.claims)
    written = model.apply(result.plan)
    assert [each.op_type for each in written.graph.node].count("Scan") == 1
    heads = [tensor for tensor in written.graph.initializer if tensor.name == "head"]
    assert np.array_equal(numpy_helper.to_array(heads[0]), numpy_helper.to_array(weight("head", WIDTH, WORDS)))


def test_small_models_are_not_looked_into() -> None:
    nodes = [node("MatMul", "x w", "y"), node("Softmax", "y", "z"), node("ReduceMax", "z", "best", axes=[1])]
    graph = helper.make_graph(nodes, "small", [value("x", [64, 8])], [value("best", [64, 1])], [weight("w", 8, 512)])
    assert OnnxModel(model_of(graph)).in_chunks is None
