"""Regions in chunks compute what they compute as a whole, for any graph, any region in it and any number of chunks."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnxruntime
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper

from lowtide.frameworks.onnx.chunks.region import ChunkedRegion, Growing
from lowtide.frameworks.onnx.chunks.values import MainValues
from lowtide.frameworks.onnx.chunks.write import in_chunks
from lowtide.frameworks.onnx.reading.translate import read_model
from lowtide.frameworks.onnx.running.inputs import random_inputs
from tests.examples import examples
from tests.frameworks.onnx.conftest import integers, model_of, node, value, weight

SHAPE = (1, 8, 4, 6)
LAST = {"axis": -1}
TURN = {"perm": [0, 1, 3, 2]}
SWAP = {"perm": [2, 1, 0, 3]}

Step = tuple[str, str, str, Mapping[str, Any]]
STEPS: Mapping[str, list[Step]] = {
    "unary": [("Erf", "a", "r", {})],
    "sum": [("Add", "a b", "r", {})],
    "softmax": [("Softmax", "a", "r", LAST)],
    "softmax of columns": [("Softmax", "a", "r", {"axis": 1})],
    "norm": [("LayerNormalization", "a six", "r", LAST)],
    "norm of images": [("LayerNormalization", "a image", "r", {"axis": 2})],
    "mean": [("ReduceMean", "a", "1", {"axes": [2]}), ("Add", "1 b", "r", {})],
    "sum away": [
        ("ReduceSum", "a third", "1", {"keepdims": 0}),
        ("Unsqueeze", "1 third", "2", {}),
        ("Mul", "2 b", "r", {}),
    ],
    "index": [
        ("ArgMax", "a", "1", LAST),
        ("Cast", "1", "2", {"to": TensorProto.FLOAT}),
        ("Sub", "2 b", "r", {}),
    ],
    "weights": [("MatMul", "a square", "r", {})],
    "scores": [
        ("Transpose", "b", "1", TURN),
        ("MatMul", "a 1", "2", {}),
        ("Softmax", "2", "3", LAST),
        ("MatMul", "3 b", "r", {}),
    ],
    "convolution": [("Conv", "a filters", "r", {"pads": [1, 1, 1, 1]})],
    "folded": [("Reshape", "a folded", "1", {}), ("Tanh", "1", "2", {}), ("Reshape", "2 whole", "r", {})],
    "affine": [("Flatten", "a", "1", {"axis": 3}), ("Gemm", "1 square six", "2", {}), ("Reshape", "2 whole", "r", {})],
    "parts": [("Split", "a", "1 2", {"axis": 3}), ("Concat", "2 1", "r", {"axis": 3})],
    "slice": [("Slice", "a zero one third", "1", {}), ("Max", "1 b", "r", {})],
    "gather": [("Gather", "a one", "1", {"axis": 2}), ("Add", "1 b", "r", {})],
    "turned": [("Transpose", "a", "1", SWAP), ("Sigmoid", "1", "2", {}), ("Transpose", "2", "r", SWAP)],
}
WEIGHTS = [
    *(weight("w", *SHAPE), weight("square", 6, 6), weight("filters", 8, 8, 3, 3), weight("image", 4, 6)),
    *(weight("six", 6), integers("folded", 8, 24), integers("whole", *SHAPE)),
    *(integers("zero", 0), integers("one", 1), integers("third", 2)),
]


@st.composite
def models(draw: Callable[..., Any]) -> ModelProto:
    """Draw a model whose values of shape SHAPE come of one another in random steps."""
    values, nodes = ["x0", "x1", "w"], list[NodeProto]()
    for number in range(draw(st.integers(1, 6))):
        made = f"v{number}"
        names = {"a": draw(st.sampled_from(values)), "b": draw(st.sampled_from(values)), "r": made}
        names |= {inner: f"{made}.{inner}" for inner in "123"}
        for op, reads, writes, attributes in STEPS[draw(st.sampled_from(sorted(STEPS)))]:
            named = (" ".join(names.get(name, name) for name in each.split()) for each in (reads, writes))
            nodes.append(node(op, *named, **attributes))
        values.append(made)
    results = dict.fromkeys([values[-1], draw(st.sampled_from(values[3:]))])
    inputs = [value("x0", SHAPE), value("x1", SHAPE)]
    return model_of(helper.make_graph(nodes, "drawn", inputs, [value(name, SHAPE) for name in results], WEIGHTS))


def regions(model: ModelProto) -> Iterator[tuple[MainValues, ChunkedRegion]]:
    """Iterate the regions around all nodes, along all axes, as small and as large as they become."""
    values = MainValues(model, read_model(model, {}, "drawn"))
    for place in range(len(values.nodes)):
        for axis in range(len(SHAPE)):
            for least in (0, 10**9):
                growing = Growing(values, frozenset())
                if growing.join(place, axis):
                    growing.grow(least)
                    region = growing.finish()
                    if region is not None and region.length > 1:
                        yield values, region


def run(content: bytes, model: ModelProto) -> list[Any]:
    """Run a model on random inputs, nothing optimized."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return session.run(None, random_inputs(model, {}))


@given(models())
@settings(examples(20), suppress_health_check=list(HealthCheck))
def test_any_region_in_any_number_of_chunks_computes_the_same(model: ModelProto) -> None:
    content = model.SerializeToString()
    expected = run(content, model)
    seen = set[tuple[int, ...]]()
    for values, region in regions(model):
        if tuple(region.nodes) in seen:
            continue
        seen.add(tuple(region.nodes))
        for chunks in (number for number in (2, 4, 8) if region.length % number == 0):
            written = b"".join(in_chunks(content, model.graph, values, {region: chunks}))
            for one, other in zip(expected, run(written, model), strict=True):
                np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
