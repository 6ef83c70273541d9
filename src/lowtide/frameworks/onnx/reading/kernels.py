"""What is known of a node's kernel beside its results: whether it may do anything, draws numbers, needs a workspace."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import GraphProto, NodeProto, TypeProto

from lowtide.frameworks.onnx.operators.nodes import int_of, operator_of
from lowtide.frameworks.onnx.operators.tables import KNOWN_DOMAINS, RANDOM, WORKSPACE_KNOWN, WORKSPACE_NOT_MODELED
from lowtide.frameworks.onnx.reading.attention import attention_bytes
from lowtide.frameworks.onnx.reading.convolutions import CONVOLUTIONS, has_sums_by_processor
from lowtide.frameworks.onnx.reading.recurrent import RECURRENT, recurrent_bytes
from lowtide.frameworks.onnx.shapes.short_tensors import array_of, short_constants
from lowtide.frameworks.onnx.shapes.sizes import BITS, static_shape

_ONE_MORE_OUTPUT = frozenset({("", "HardSwish"), ("", "Mish"), ("", "Swish")})
"""Run as several steps, with one intermediate value as large as the output alive beside it."""
_ACCUMULATING = frozenset({("", "Sum"), ("", "Mean"), ("", "Max"), ("", "Min")})
"""Of more than two inputs: all but the last are combined into a value of its own."""
_TRANSPOSING = frozenset({("", "Softmax"), ("", "LogSoftmax"), ("", "Hardmax")})
"""Along an axis that is not the last: input and output are transposed into values of their own (since opset 13)."""

_ADDING_A_BIAS = frozenset({("com.microsoft", "BiasGelu"), ("com.microsoft", "FastGelu")})
"""With two inputs: their sum is a value of its own."""
_SUM_BYTES = 4
"""Of an integer that adds up products of integers of one byte."""


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
    mode = short_constants(graph).get(node.input[2])
    return mode is None or bool(array_of(mode).any())


def has_unknown_workspace(node: NodeProto, types: Mapping[str, TypeProto]) -> bool:
    """Return whether a node's kernel may allocate a workspace that `workspace_bytes` does not count."""
    operator = operator_of(node)
    if operator == ("com.microsoft", "QLinearConv"):
        return has_sums_by_processor(node, types)
    return operator in WORKSPACE_NOT_MODELED or (operator[0] == "com.microsoft" and operator not in WORKSPACE_KNOWN)


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
    if operator == ("com.microsoft", "QGemm"):
        return _product_of_integers_bytes(node, types)
    if operator == ("com.microsoft", "DynamicQuantizeMatMul"):
        return _quantized_bytes(node.input[0], types)
    if operator in CONVOLUTIONS:
        return CONVOLUTIONS[operator](node, types)
    if operator == ("", "Attention"):
        return attention_bytes(node, types)
    return _neighbors_bytes(node, types) if operator == ("", "LRN") else 0


def _neighbors_bytes(node: NodeProto, types: Mapping[str, TypeProto]) -> int:
    """Return the workspace of a norm over neighboring channels: a scale for every element, the squares of an image."""
    shape = static_shape(types.get(node.input[0], TypeProto()))
    if shape is None or len(shape) < 2:
        return 0
    squares = (shape[1] + int_of(node, "size") - 1) * math.prod(shape[2:])
    return (math.prod(shape) + squares) * BITS.get(types[node.input[0]].tensor_type.elem_type, 0) // 8


def _product_of_integers_bytes(node: NodeProto, types: Mapping[str, TypeProto]) -> int:
    """Return the sums that become integers of one byte, and the left matrix where it is transposed."""
    sums = _SUM_BYTES * _quantized_bytes(node.output[0], types) if len(node.input) > 8 and node.input[8] else 0
    return sums + (_quantized_bytes(node.input[0], types) if int_of(node, "transA") else 0)


def _quantized_bytes(name: str, types: Mapping[str, TypeProto]) -> int:
    """Return the bytes of a value in integers of one byte."""
    return math.prod(static_shape(types.get(name, TypeProto())) or [0])


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
