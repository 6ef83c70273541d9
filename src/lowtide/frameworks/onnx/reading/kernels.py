"""Facts about a node's kernel: opaque, random, workspace."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto, TensorProto, TypeProto

from lowtide.frameworks.onnx.operators.nodes import attribute_of, int_of, operator_of
from lowtide.frameworks.onnx.operators.tables import KNOWN_DOMAINS, RANDOM, WORKSPACE_KNOWN, WORKSPACE_NOT_MODELED
from lowtide.frameworks.onnx.reading.convolutions import CONVOLUTIONS, has_sums_by_processor
from lowtide.frameworks.onnx.shapes.tensors import array_of, bytes_like, shape_in, static_shape

_ONE_MORE_OUTPUT = frozenset({("", "HardSwish"), ("", "Mish"), ("", "Swish")})
"""Kernels with an intermediate as large as the output."""
_ACCUMULATING = frozenset({("", "Sum"), ("", "Mean"), ("", "Max"), ("", "Min")})
"""Kernels that combine all inputs but the last, if there are more than two."""
_TRANSPOSING = frozenset({("", "Softmax"), ("", "LogSoftmax"), ("", "Hardmax")})
"""Kernels with transposed copies of input and output, unless along the last axis (since opset 13)."""

_ADDING_A_BIAS = frozenset({("com.microsoft", "BiasGelu"), ("com.microsoft", "FastGelu")})
"""Kernels with the sum of two inputs as an intermediate."""
_SUM_BYTES = 4
"""Bytes of an integer sum."""


def is_opaque(node: NodeProto) -> bool:
    """Return whether a node may have any effect."""
    return operator_of(node)[0] not in KNOWN_DOMAINS


def draws_random(node: NodeProto, constants: Mapping[str, TensorProto]) -> bool:
    """Return whether a node draws random numbers; Dropout does unless its mode is known to be inference."""
    operator = operator_of(node)
    if operator != ("", "Dropout"):
        return operator in RANDOM
    if len(node.input) < 3 or not node.input[2]:
        return False
    mode = constants.get(node.input[2])
    return mode is None or bool(array_of(mode).any())


def has_unknown_workspace(node: NodeProto, types: Mapping[str, TypeProto]) -> bool:
    """Return whether a workspace is not counted by `workspace_bytes`."""
    operator = operator_of(node)
    if operator == ("com.microsoft", "QLinearConv"):
        return has_sums_by_processor(node, types)
    return operator in WORKSPACE_NOT_MODELED or (operator[0] == "com.microsoft" and operator not in WORKSPACE_KNOWN)


def workspace_bytes(node: NodeProto, types: Mapping[str, TypeProto], opset: int) -> int:
    """Return a node's workspace, 0 if a shape is unknown; `types` holds its values, `opset` is the default domain's."""
    operator = operator_of(node)
    if operator == ("", "Where") and len(node.input) == 3:
        condition, one, other = node.input
        return _broadcast_bytes((condition, one), one, types) + _broadcast_bytes((condition, other), one, types)
    has_bias = len(node.input) > 1 and bool(node.input[1])
    if operator in _ONE_MORE_OUTPUT or (operator in _ADDING_A_BIAS and has_bias):
        return _broadcast_bytes(node.output[:1], node.output[0], types)
    if operator in _ACCUMULATING and len(node.input) > 2:
        return _broadcast_bytes(node.input[:-1], node.input[0], types)
    if operator in _TRANSPOSING and opset >= 13 and not _along_last_axis(node, types):
        return 2 * _broadcast_bytes(node.output[:1], node.output[0], types)
    if operator in _RECURRENT:
        return _recurrent_bytes(node, types)
    if operator == ("", "QLinearMatMul"):
        return _SUM_BYTES * _broadcast_bytes(node.output[:1], node.output[0], types)
    if operator == ("com.microsoft", "QGemm"):
        return _product_of_integers_bytes(node, types)
    if operator == ("com.microsoft", "DynamicQuantizeMatMul"):
        return _quantized_bytes(node.input[0], types)
    if operator in CONVOLUTIONS:
        return CONVOLUTIONS[operator](node, types)
    if operator == ("", "Attention"):
        return _attention_bytes(node, types)
    return _neighbors_bytes(node, types) if operator == ("", "LRN") else 0


def _neighbors_bytes(node: NodeProto, types: Mapping[str, TypeProto]) -> int:
    """Return LRN's workspace: a scale per element, and squares of an image."""
    shape = shape_in(types, node.input[0])
    if shape is None or len(shape) < 2:
        return 0
    squares = (shape[1] + int_of(node, "size") - 1) * math.prod(shape[2:])
    return bytes_like(types, node.input[0], math.prod(shape) + squares)


def _product_of_integers_bytes(node: NodeProto, types: Mapping[str, TypeProto]) -> int:
    """Return the sums behind one-byte results, and a transposed left matrix."""
    sums = _SUM_BYTES * _quantized_bytes(node.output[0], types) if len(node.input) > 8 and node.input[8] else 0
    return sums + (_quantized_bytes(node.input[0], types) if int_of(node, "transA") else 0)


def _quantized_bytes(name: str, types: Mapping[str, TypeProto]) -> int:
    return math.prod(shape_in(types, name) or [0])


def _broadcast_bytes(names: Sequence[str], element: str, types: Mapping[str, TypeProto]) -> int:
    """Return the bytes of `names` broadcast together, in elements like `element`."""
    shapes = [shape_in(types, name) for name in names]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or element not in types:
        return 0
    try:
        return bytes_like(types, element, math.prod(np.broadcast_shapes(*known)))
    except ValueError:  # the runtime reports it
        return 0


def _along_last_axis(node: NodeProto, types: Mapping[str, TypeProto]) -> bool:
    shape = shape_in(types, node.output[0])
    return shape is None or int_of(node, "axis", -1) in (-1, len(shape) - 1)


_MASK, _PAST_KEY = 3, 4
"""Input positions."""


def _attention_bytes(node: NodeProto, types: Mapping[str, TypeProto]) -> int:
    """Return an Attention's workspace: scores of all heads, and a mask if causal or boolean; 0 if a shape is unknown.

    Source: allocations of ONNX Runtime 1.31, over layouts, masks and past keys.
    """
    query, key = (shape_in(types, name) for name in node.input[:2])
    if query is None or key is None or len(query) not in (3, 4) or len(query) != len(key):
        return 0
    heads = query[1] if len(query) == 4 else int_of(node, "q_num_heads")
    past = shape_in(types, _input(node, _PAST_KEY))
    rows, columns = query[-2], key[-2] + (past[-2] if past is not None and len(past) == 4 else 0)
    mask, given = 0, types.get(_input(node, _MASK))
    if given is not None:
        is_made = int_of(node, "is_causal") or given.tensor_type.elem_type == TensorProto.BOOL
        mask = math.prod(static_shape(given) or (rows, columns)) if is_made else 0
    elif int_of(node, "is_causal"):
        mask = rows * columns
    return bytes_like(types, node.input[0], query[0] * heads * rows * columns + mask)


def _input(node: NodeProto, place: int) -> str:
    return node.input[place] if len(node.input) > place else ""


_RECURRENT = frozenset({("", "LSTM"), ("", "GRU"), ("", "RNN")})
_LAST_STATES = {"LSTM": 2, "GRU": 1}
_BYTES = 4
"""Bytes of a float."""


def _recurrent_bytes(node: NodeProto, types: Mapping[str, TypeProto]) -> int:
    """Return the workspace of a float LSTM, GRU or RNN on one thread; 0 if a shape is unknown.

    Source: allocations of ONNX Runtime 1.31, over shapes, directions and biases.
    """
    inputs, weights = (shape_in(types, name) for name in (node.input[0], node.input[2]))
    if inputs is None or weights is None or len(inputs) != 3 or len(weights) != 3:
        return 0
    steps, batch, features = inputs
    directions, _, hidden = weights
    state, has_bias = batch * hidden, len(node.input) > 3 and bool(node.input[3])
    _, kind = operator_of(node)
    if kind == "RNN":
        return _BYTES * steps * state
    if kind == "LSTM":
        elements = 4 * steps * state + 3 * state + (6 if has_bias else 2) * hidden
    else:
        resets_late = bool(int_of(node, "linear_before_reset"))
        elements = 3 * steps * state + (2 + resets_late + has_bias * (3 + resets_late)) * state
    direction = attribute_of(node, "direction")
    # Last states are allocated even if unused.
    missing = _LAST_STATES[kind] - sum(map(bool, node.output[1:]))
    turned = steps * batch * (features + hidden) if direction is not None and direction.s != b"forward" else 0
    return _BYTES * (directions * (elements + batch + missing * state) + turned)
