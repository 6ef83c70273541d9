"""The workspace of the standard attention kernel: the scores of all heads, and a mask."""

import math
from collections.abc import Mapping

from onnx import NodeProto, TensorProto, TypeProto

from lowtide.frameworks.onnx.operators.nodes import int_of
from lowtide.frameworks.onnx.shapes.sizes import BITS, static_shape

_MASK, _PAST_KEY = 3, 4
"""Places of inputs."""


def attention_bytes(node: NodeProto, types: Mapping[str, TypeProto]) -> int:
    """Return the workspace of an Attention node; 0 where a shape is not known.

    Source: allocations of ONNX Runtime 1.31, counted over layouts, masks and earlier keys. Keys and values that more
    than one head reads are not repeated; a mask is made where a causal one is asked for, or the one given is of truths.
    """
    query, key = (static_shape(types.get(name, TypeProto())) for name in node.input[:2])
    if query is None or key is None or len(query) not in (3, 4) or len(query) != len(key):
        return 0
    heads = query[1] if len(query) == 4 else int_of(node, "q_num_heads")
    past = static_shape(types.get(_input(node, _PAST_KEY), TypeProto()))
    rows, columns = query[-2], key[-2] + (past[-2] if past is not None and len(past) == 4 else 0)
    mask, given = 0, types.get(_input(node, _MASK))
    if given is not None:
        is_made = int_of(node, "is_causal") or given.tensor_type.elem_type == TensorProto.BOOL
        mask = math.prod(static_shape(given) or (rows, columns)) if is_made else 0
    elif int_of(node, "is_causal"):
        mask = rows * columns
    elements = query[0] * heads * rows * columns + mask
    return elements * BITS.get(types[node.input[0]].tensor_type.elem_type, 0) // 8


def _input(node: NodeProto, place: int) -> str:
    return node.input[place] if len(node.input) > place else ""
