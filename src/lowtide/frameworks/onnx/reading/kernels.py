"""Facts about a node's kernel; workspaces as counted in ONNX Runtime 1.31."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import NodeProto, TensorProto, TypeProto

from lowtide.frameworks.onnx.operators.nodes import attribute_of, int_of, ints_of, operator_of
from lowtide.frameworks.onnx.operators.tables import (
    HALF_KERNELS,
    KNOWN_DOMAINS,
    RANDOM,
    WORKSPACE_KNOWN,
    WORKSPACE_NOT_MODELED,
    Operator,
    named,
)
from lowtide.frameworks.onnx.shapes.tensors import array_of, bytes_like, shape_in, static_shape

Types = Mapping[str, TypeProto]

_ONE_MORE_OUTPUT = named("HardSwish Mish Swish")
_ACCUMULATING = named("Sum Mean Max Min")
_TRANSPOSING = named("Softmax LogSoftmax Hardmax")

_ADDING_A_BIAS = named("BiasGelu FastGelu", "com.microsoft")
_SUM_BYTES = 4


def is_opaque(node: NodeProto) -> bool:
    """Return whether a node may have any effect."""
    return operator_of(node)[0] not in KNOWN_DOMAINS


def draws_random(node: NodeProto, constants: Mapping[str, TensorProto]) -> bool:
    """Return whether a node draws random numbers; Dropout does unless known to be in inference."""
    operator = operator_of(node)
    if operator != ("", "Dropout"):
        return operator in RANDOM
    if len(node.input) < 3 or not node.input[2]:
        return False
    mode = constants.get(node.input[2])
    return mode is None or bool(array_of(mode).any())


def has_unknown_workspace(node: NodeProto, types: Types) -> bool:
    """Return whether `workspace_bytes` does not count a workspace."""
    operator = operator_of(node)
    if operator == ("com.microsoft", "QLinearConv"):
        return _has_sums_by_processor(node, types)
    return operator in WORKSPACE_NOT_MODELED or (operator[0] == "com.microsoft" and operator not in WORKSPACE_KNOWN)


def has_half(node: NodeProto, types: Types) -> bool:
    """Return whether an operand or a result is float16."""
    found = (types[name] for name in (*node.input, *node.output) if name in types)
    return any(each.tensor_type.elem_type == TensorProto.FLOAT16 for each in found)


def has_half_kernel(node: NodeProto) -> bool:
    """Return whether the runtime computes the node in float16; else it adds casts to float32 on loading."""
    operator = operator_of(node)
    return bool(operator[0]) or operator in HALF_KERNELS


def workspace_bytes(node: NodeProto, types: Types, opset: int) -> int:
    """Return workspace bytes; 0 if a shape is unknown."""
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
    if operator in _CONVOLUTIONS:
        return _CONVOLUTIONS[operator](node, types)
    if operator == ("", "Attention"):
        return _attention_bytes(node, types)
    return _neighbors_bytes(node, types) if operator == ("", "LRN") else 0


def _neighbors_bytes(node: NodeProto, types: Types) -> int:
    """LRN: a scale per element, and the squares of an image."""
    shape = shape_in(types, node.input[0])
    if shape is None or len(shape) < 2:
        return 0
    squares = (shape[1] + int_of(node, "size") - 1) * math.prod(shape[2:])
    return bytes_like(types, node.input[0], math.prod(shape) + squares)


def _product_of_integers_bytes(node: NodeProto, types: Types) -> int:
    sums = _SUM_BYTES * _quantized_bytes(node.output[0], types) if len(node.input) > 8 and node.input[8] else 0
    return sums + (_quantized_bytes(node.input[0], types) if int_of(node, "transA") else 0)


def _quantized_bytes(name: str, types: Types) -> int:
    return math.prod(shape_in(types, name) or [0])


def _broadcast_bytes(names: Sequence[str], element: str, types: Types) -> int:
    shapes = [shape_in(types, name) for name in names]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or element not in types:
        return 0
    try:
        return bytes_like(types, element, math.prod(np.broadcast_shapes(*known)))
    except ValueError:  # the runtime reports it
        return 0


def _along_last_axis(node: NodeProto, types: Types) -> bool:
    shape = shape_in(types, node.output[0])
    return shape is None or int_of(node, "axis", -1) in (-1, len(shape) - 1)


_MASK, _PAST_KEY = 3, 4


def _attention_bytes(node: NodeProto, types: Types) -> int:
    """Scores of all heads, and a mask if causal or boolean."""
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


_RECURRENT = named("LSTM GRU RNN")
_LENGTHS = 4
_LAST_STATES = {"LSTM": 2, "GRU": 1}
_BYTES = 4


def _recurrent_bytes(node: NodeProto, types: Types) -> int:
    """Workspace of a float LSTM, GRU or RNN on one thread."""
    inputs, weights = (shape_in(types, name) for name in (node.input[0], node.input[2]))
    if inputs is None or weights is None or len(inputs) != 3 or len(weights) != 3:
        return 0
    steps, batch, features = inputs
    directions, _, hidden = weights
    state, has_bias = batch * hidden, len(node.input) > 3 and bool(node.input[3])
    _, kind = operator_of(node)
    if kind == "RNN":  # all states are allocated even if unused
        return _BYTES * steps * state * (1 if node.output[0] else 1 + directions)
    if kind == "LSTM":
        elements = 4 * steps * state + 3 * state + (6 if has_bias else 2) * hidden
    else:
        resets_late = bool(int_of(node, "linear_before_reset"))
        elements = 3 * steps * state + (2 + resets_late + has_bias * (3 + resets_late)) * state
    direction = attribute_of(node, "direction")
    # Last states are allocated even if unused.
    missing = _LAST_STATES[kind] - sum(map(bool, node.output[1:]))
    turned = steps * batch * (features + hidden) if direction is not None and direction.s != b"forward" else 0
    lengths = 0 if _input(node, _LENGTHS) else batch
    return _BYTES * (directions * (elements + lengths + missing * state) + turned)


_SEGMENT_BYTES = 2**16
"""Copied windows per thread; one thread is counted."""
_POINTER = 8
_PACKED_INPUTS, _LEAST_PACKED_FILTERS, _PACKED_GROUPS = 4, 16, 16
"""Channels per block of kernels for symmetric weights."""
_PACKED_FILTERS_EVERYWHERE = 8
"""Filters per block with any instruction set."""


def _of_floats(node: NodeProto, types: Types) -> int:
    """All windows if there are fewer positions than filters, else a segment; none for plain pointwise filters."""
    result, filters = shape_in(types, node.output[0]), shape_in(types, node.input[1])
    if result is None or filters is None or types[node.output[0]].tensor_type.elem_type != TensorProto.FLOAT:
        return 0
    window, places = math.prod(filters[2:]), math.prod(result[2:])
    auto_pad = attribute_of(node, "auto_pad")
    is_plain = auto_pad is None or auto_pad.s in (b"NOTSET", b"VALID")
    if window == 1 and is_plain and not any(ints_of(node, "pads")) and not _strides(node):
        return 0
    if filters[0] // int_of(node, "group", 1) > places:
        return 4 * places * window * filters[1]
    return _SEGMENT_BYTES


def _transposed(node: NodeProto, types: Types) -> int:
    """A group's products for one image."""
    image, filters = shape_in(types, node.input[0]), shape_in(types, node.input[1])
    if image is None or filters is None:
        return 0
    return bytes_like(types, node.input[0], math.prod(filters[1:]) * math.prod(image[2:]))


def _of_integers(node: NodeProto, types: Types) -> int:
    """For channels-last x86 kernels: windows of an image or pointers to them, and 32-bit sums.

    Symmetric kernels have no sums, but pointers for all images.
    """
    result, filters = shape_in(types, node.output[0]), shape_in(types, node.input[3])
    if result is None or filters is None or len(result) < 3 or len(filters) < 3 or not int_of(node, "channels_last"):
        return 0
    window, is_depthwise = math.prod(filters[2:]), _is_depthwise(node, filters)
    is_symmetric = _is_symmetric(node, filters, types)
    is_point = window == 1 and not is_depthwise and not _strides(node)
    if is_symmetric:
        return 0 if is_point else math.prod(result[:-1]) * _POINTER * window
    windows = _POINTER * window if is_depthwise else 0 if is_point else window * filters[1]
    return math.prod(result[1:-1]) * (windows + _SUM_BYTES * filters[0])


def _has_sums_by_processor(node: NodeProto, types: Types) -> bool:
    filters = shape_in(types, node.input[3])
    if filters is None or len(filters) < 3 or _is_depthwise(node, filters) or not _is_symmetric(node, filters, types):
        return False
    return filters[0] % _PACKED_FILTERS_EVERYWHERE > 0


def _is_depthwise(node: NodeProto, filters: Sequence[int]) -> bool:
    return int_of(node, "group", 1) > 1 and filters[1] == 1 and filters[0] == int_of(node, "group", 1)


def _is_symmetric(node: NodeProto, filters: Sequence[int], types: Types) -> bool:
    kinds = types[node.input[0]].tensor_type.elem_type, types[node.input[3]].tensor_type.elem_type
    if kinds != (TensorProto.UINT8, TensorProto.INT8):
        return False
    group = int_of(node, "group", 1)
    if _is_depthwise(node, filters):
        return group % _PACKED_GROUPS == 0
    packs = filters[0] % _PACKED_INPUTS == 0 and filters[0] >= _LEAST_PACKED_FILTERS
    return group == 1 and filters[1] % _PACKED_INPUTS == 0 and packs


def _strides(node: NodeProto) -> bool:
    return any(stride > 1 for stride in ints_of(node, "strides"))


_CONVOLUTIONS: Mapping[Operator, Callable[[NodeProto, Types], int]] = {
    ("", "Conv"): _of_floats,
    ("com.microsoft", "FusedConv"): _of_floats,
    ("", "ConvTranspose"): _transposed,
    ("com.microsoft", "QLinearConv"): _of_integers,
}
