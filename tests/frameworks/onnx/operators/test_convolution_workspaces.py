"""Workspaces of convolutions and of attention, to the byte, as ONNX Runtime asks its allocator for them."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lowtide.engine.analysis import Problem
from lowtide.frameworks.onnx.measure import measure_peak
from lowtide.frameworks.onnx.reading.translate import read_model
from lowtide.frameworks.onnx.running.inputs import random_inputs

FLOAT = TensorProto.FLOAT


def _model(
    op: str, inputs: dict[str, Any], weights: dict[str, Any], kind: int = FLOAT, domain: str = "", **attributes: Any
) -> onnx.ModelProto:
    made = helper.make_node(op, [*inputs, *weights], ["y"], domain=domain, **attributes)
    fed = [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()]
    results = [helper.make_tensor_value_info("y", kind, None)]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([made], op, fed, results, tensors)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _assert_predicted(model: onnx.ModelProto) -> None:
    problem = Problem(read_model(model, {}, "given").graph)
    measured = measure_peak(model, random_inputs(model, {})).peak_bytes
    assert measured == problem.evaluate(problem.given_order()).peaks.sum()


def _of_integers(
    channels: int, filters: int, window: int, stride: int, group: int, filter_kind: type[np.generic]
) -> onnx.ModelProto:
    """Give a convolution of bytes, channels last, as the runtime's optimizations write it."""
    scale, zero = np.array(0.1, np.float32), np.array(128, np.uint8)
    content = np.ones((filters, channels // group, window, window), filter_kind)
    weights: dict[str, Any] = {"xs": scale, "xz": zero, "w": content, "ws": scale}
    weights |= {"wz": np.array(0, filter_kind), "ys": scale, "yz": zero}
    return _model(
        "QLinearConv",
        {"x": [2, 12, 14, channels]},
        weights,
        TensorProto.UINT8,
        "com.microsoft",
        channels_last=1,
        group=group,
        kernel_shape=[window, window],
        strides=[stride, stride],
    )


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize(
    ("channels", "filters", "group"),
    [(3, 16, 1), (8, 12, 1), (8, 18, 1), (8, 24, 1), (24, 24, 24), (32, 32, 32), (8, 32, 2)],
)
def test_integer_convolutions_hold_pointers_or_windows_and_sums(
    channels: int, filters: int, group: int, window: int, stride: int, kind: type[np.generic]
) -> None:
    """Symmetric weights whose channels come in whole blocks need no sums; depthwise ones have pointers alone."""
    _assert_predicted(_of_integers(channels, filters, window, stride, group, kind))


@pytest.mark.parametrize(("filters", "kind", "count"), [(20, np.int8, 1), (24, np.int8, 0), (20, np.uint8, 0)])
def test_where_sums_hang_on_the_processor_that_is_said(filters: int, kind: type[np.generic], count: int) -> None:
    """Symmetric weights in blocks of four filters need none with some instructions, and do with others."""
    graph = read_model(_of_integers(8, filters, 3, 1, 1, kind), {}, "given").graph
    assert sum("workspace of QLinearConv kernels" in note for note in graph.unmodeled) == count


@pytest.mark.parametrize(
    ("fan_in", "fan_out", "window", "group", "batch"), [(6, 5, 4, 1, 1), (6, 10, 3, 2, 3), (6, 4, 1, 1, 1)]
)
def test_transposed_convolutions_hold_the_windows_of_a_group(
    fan_in: int, fan_out: int, window: int, group: int, batch: int
) -> None:
    weights = {"w": np.ones((fan_in, fan_out, window, window), np.float32)}
    inputs = {"x": [batch, fan_in, 20, 22]}
    _assert_predicted(_model("ConvTranspose", inputs, weights, group=group, strides=[2, 2]))


def test_norms_over_neighboring_channels_hold_scales_and_the_squares_of_an_image() -> None:
    _assert_predicted(_model("LRN", {"x": [2, 7, 20, 22]}, {}, size=5))


HEADS = {"q": [2, 4, 50, 16], "k": [2, 4, 70, 16], "v": [2, 4, 70, 24]}
WIDE = {"q": [2, 50, 64], "k": [2, 70, 32], "v": [2, 70, 48]}
WIDE_HEADS = {"q_num_heads": 4, "kv_num_heads": 2}


@pytest.mark.parametrize(
    ("inputs", "mask", "attributes"),
    [
        (HEADS, None, {}),
        (HEADS, None, {"is_causal": 1}),
        (WIDE, None, WIDE_HEADS),
        (WIDE, None, {**WIDE_HEADS, "is_causal": 1}),
        (HEADS, np.zeros((50, 70), np.float32), {}),
        (HEADS, np.zeros((2, 1, 50, 70), np.float32), {"is_causal": 1}),
        (HEADS, np.ones((50, 70), np.bool_), {}),
    ],
)
def test_attention_holds_the_scores_of_all_heads_and_a_mask_of_its_own(
    inputs: dict[str, Any], mask: Any, attributes: dict[str, int]
) -> None:
    weights = {} if mask is None else {"mask": mask}
    _assert_predicted(_model("Attention", inputs, weights, **attributes))


@pytest.mark.parametrize("turned", [0, 1])
def test_products_with_rows_before_the_batch_have_shapes(turned: int) -> None:
    attributes = {"transBatchA": 1, "transBatchB": 1, "transA": turned, "transB": 1 - turned}
    rows, columns = ([16, 2, 3, 40], [50, 2, 3, 40])[::-1] if turned else ([40, 2, 3, 16], [50, 2, 3, 16])
    if turned:
        rows, columns = [16, 2, 3, 40], [16, 2, 3, 50]
    model = _model("FusedMatMul", {"a": rows, "b": columns}, {}, domain="com.microsoft", **attributes)
    assert not read_model(model, {}, "given").graph.unmodeled
    _assert_predicted(model)
