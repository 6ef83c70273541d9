"""Bytes that ONNX Runtime's CPU kernels allocate beside their outputs, where that is known exactly."""

import math
from collections.abc import Mapping

import numpy as np
from onnx import NodeProto, TypeProto

from lowtide.frameworks.onnx.operators import operator_of
from lowtide.frameworks.onnx.sizes import BITS, static_shape, type_bytes

_ONE_MORE_OUTPUT = frozenset({("", "HardSwish"), ("", "Mish")})
"""Run as several steps, with one intermediate value as large as the output alive beside it."""


def workspace_bytes(node: NodeProto, types: Mapping[str, TypeProto]) -> int:
    """Return the workspace of a node in bytes; 0 where there is none or a shape is not known.

    `types` holds the types of what the node reads and writes.
    """
    operator = operator_of(node)
    if operator == ("", "Where"):
        return _where_bytes(node, types)
    if operator in _ONE_MORE_OUTPUT and node.output[0] in types:
        return type_bytes(types[node.output[0]], node.output[0]) or 0
    return 0


def _where_bytes(node: NodeProto, types: Mapping[str, TypeProto]) -> int:
    """Both choices are selected into values of their own before they are merged."""
    if len(node.input) != 3 or any(name not in types for name in node.input):
        return 0
    condition, *choices = (static_shape(types[name]) for name in node.input)
    bits = BITS.get(types[node.input[1]].tensor_type.elem_type, 0)
    total = 0
    for shape in choices:
        if condition is None or shape is None:
            return 0
        try:
            total += math.prod(np.broadcast_shapes(condition, shape)) * bits // 8
        except ValueError:  # shapes that do not broadcast: inference has its say on that
            return 0
    return total
