"""What is known of a node's kernel beside its results: whether it may do anything, draws numbers, needs a workspace."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, TypeProto

from lowtide.frameworks.onnx.operators.nodes import attribute_of, int_of, ints_of, operator_of
from lowtide.frameworks.onnx.operators.tables import KNOWN_DOMAINS, RANDOM
from lowtide.frameworks.onnx.reading.recurrent import RECURRENT, recurrent_bytes
from lowtide.frameworks.onnx.shapes.short_tensors import array_of, is_short
from lowtide.frameworks.onnx.shapes.sizes import BITS, static_shape

_ONE_MORE_OUTPUT = frozenset({("", "HardSwish"), ("", "Mish"), ("", "Swish")})
"""Run as several steps, with one intermediate value as large as the output alive beside it."""
_ACCUMULATING = frozenset({("", "Sum"), ("", "Mean"), ("", "Max"), ("", "Min")})
"""Of more than two inputs: all but the last are combined into a value of its own."""
_TRANSPOSING = frozenset({("", "Softmax"), ("", "LogSoftmax"), ("", "Hardmax")})
"""Along an axis that is not the last: input and output are transposed into values of their own (since opset 13)."""

_ADDING_A_BIAS = frozenset({("com.microsoft", "BiasGelu"), ("com.microsoft", "FastGelu")})
"""With two inputs: their sum is a value of its own."""
_CONVOLUTIONS = frozenset({("", "Conv"), ("com.microsoft", "FusedConv")})
_SUM_BYTES = 4
"""Of an integer that adds up products of integers of one byte."""
_SEGMENT_BYTES = 2**16
"""What a convolution copies its windows to, segment by segment; each thread has one, and one thread is counted."""


def is_opaque(node: NodeProto) -> bool:
    """Return whether nothing is known about a node's operator, so that it may do anything."""
    return operator_of(node)[0] not in KNOWN_DOMAINS


def draws_random(node: NodeProto, graph: GraphProto) -> bool:
    """Return whether a node draws random numbers; Dropout does in training mode, or where the mode is not known."""
    operator = operator_of(node)
    if operator != ("", "Dropout"):
        return operator in RANDOM
    if len(node.input) < 3 or not node.input[2]:
        return False
    mode = next((tensor for tensor in graph.initializer if tensor.name == node.input[2] and is_short(tensor)), None)
    return mode is None or bool(array_of(mode).any())


def workspace_bytes(node: NodeProto, types: Mapping[str, TypeProto], opset: int) -> int:
    """Return the workspace of a node in bytes; 0 where there is none or a shape is not known.

    `types` holds the types of what the node reads and writes, `opset` is the version of the default domain.
    """
    operator = operator_of(node)
    if operator == ("", "Where") and len(node.input) == 3:
        condition, one, other = node.input
        return _broadcast_bytes((condition, one), one, types) + _broadcast_bytes((condition, other), one, types)
    if operator in _ONE_MORE_OUTPUT:
        return _broadcast_bytes(node.output[:1], node.output[0], types)
    if operator in _ADDING_A_BIAS and len(node.input) > 1 and node.input[1]:
        return _broadcast_bytes(node.output[:1], node.output[0], types)
    if operator in _ACCUMULATING and len(node.input) > 2:
        return _broadcast_bytes(node.input[:-1], node.input[0], types)
    if operator in _TRANSPOSING and opset >= 13 and not _along_last_axis(node, types):
        return 2 * _broadcast_bytes(node.output[:1], node.output[0], types)
    if operator in RECURRENT:
        return recurrent_bytes(node, types)
    if operator == ("", "QLinearMatMul"):
        return _SUM_BYTES * _broadcast_bytes(node.output[:1], node.output[0], types)
    if operator == ("com.microsoft", "QLinearConv"):
        return _quantized_convolution_bytes(node, types)
    return _convolution_bytes(node, types) if operator in _CONVOLUTIONS else 0


def _convolution_bytes(node: NodeProto, types: Mapping[str, TypeProto]) -> int:
    """Return the workspace of a convolution of floats: all windows where there are fewer places than filters, else a
    segment of them; nothing for points without stride and padding."""
    result = static_shape(types[node.output[0]]) if node.output[0] in types else None
    filters = static_shape(types[node.input[1]]) if node.input[1] in types else None
    if result is None or filters is None or types[node.output[0]].tensor_type.elem_type != TensorProto.FLOAT:
        return 0
    window, places = math.prod(filters[2:]), math.prod(result[2:])
    auto_pad = attribute_of(node, "auto_pad")
    moves = [*ints_of(node, "pads"), *(stride - 1 for stride in ints_of(node, "strides"))]
    if window == 1 and not any(moves) and (auto_pad is None or auto_pad.s in (b"NOTSET", b"VALID")):
        return 0
    if filters[0] // int_of(node, "group", 1) > places:
        return 4 * places * window * filters[1]
    return _SEGMENT_BYTES


def _quantized_convolution_bytes(node: NodeProto, types: Mapping[str, TypeProto]) -> int:
    """Return the workspace of a convolution of integers with channels last, as kernels on x86 take it.

    Depthwise ones hold a pointer for every element of a window, others the windows themselves and sums of 32 bits;
    those of a single element take nothing.
    """
    result = static_shape(types[node.output[0]]) if node.output[0] in types else None
    filters = static_shape(types[node.input[3]]) if node.input[3] in types else None
    if result is None or filters is None or len(result) < 3 or len(filters) < 3 or not int_of(node, "channels_last"):
        return 0
    group = int_of(node, "group", 1)
    window, places = math.prod(filters[2:]), math.prod(result[1:-1])
    if window == 1:
        return 0
    if group > 1 and filters[1] == 1 and filters[0] == group:
        return 8 * window * places
    return places * (4 * filters[0] + window * filters[1])


def _broadcast_bytes(names: Sequence[str], element: str, types: Mapping[str, TypeProto]) -> int:
    """Return the bytes of several values broadcast together, with elements of the type of `element`."""
    shapes = [static_shape(types[name]) if name in types else None for name in names]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or element not in types:
        return 0
    try:
        elements = math.prod(np.broadcast_shapes(*known))
    except ValueError:  # shapes that do not broadcast: the runtime has its say on that
        return 0
    return elements * BITS.get(types[element].tensor_type.elem_type, 0) // 8


def _along_last_axis(node: NodeProto, types: Mapping[str, TypeProto]) -> bool:
    shape = static_shape(types[node.output[0]]) if node.output[0] in types else None
    return shape is None or int_of(node, "axis", -1) in (-1, len(shape) - 1)
