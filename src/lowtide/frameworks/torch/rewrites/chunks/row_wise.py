"""Which ops treat every row of their tensors alone, so that doing some rows gives the very bits of doing all."""

import operator
from typing import Any

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.hints import is_symbolic
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.operators import op_name, overload_of
from lowtide.frameworks.torch.reading.effects import arguments_by_name, mutated_arguments
from lowtide.frameworks.torch.reading.lowering import nodes_in
from lowtide.frameworks.torch.rewrites.split_foreach import FUSED_OPTIMIZERS

EMBEDDING_BACKWARD = torch.ops.aten.embedding_dense_backward.default

ARITHMETIC = frozenset(
    ("add", "sub", "rsub", "mul", "div", "sqrt", "reciprocal", "addcmul", "addcdiv", "lerp", *FUSED_OPTIMIZERS)
)
"""Equal bits in float32 and float64 however elements are grouped: CPU kernels do the last few, which fill no vector
register, in other code. Other functions (powers, sigmoids) and narrower types round differently there."""

EXACT = frozenset(
    ("abs", "neg", "sign", "maximum", "minimum", "clamp", "where", "copy", "clone", "_to_copy", "fill", "zero")
) | frozenset(("eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or"))
"""Equal bits in every type."""

_ARITHMETIC_TYPES = (torch.float32, torch.float64)


def shape_by_rows(node: Node) -> torch.Size | None:
    """Return the shape of what a node computes row by row, None where it does not, or nobody has checked that it does.

    All its results and all that it overwrites have that shape and are contiguous; see `is_cut` for its operands.
    """
    if node.target is operator.getitem:
        value, source = value_of(node), node.args[0]
        shape = shape_by_rows(source) if isinstance(source, Node) else None
        return shape if isinstance(value, torch.Tensor) and value.shape == shape else None
    if overload_of(node.target) is None:
        return None
    if node.target is EMBEDDING_BACKWARD:
        return _of_embedding(node)
    name = op_name(node.target)
    plain = name if name in FUSED_OPTIMIZERS else name.removeprefix("_foreach_").removesuffix("_")
    if plain not in ARITHMETIC and plain not in EXACT:
        return None
    results = [leaf for leaf in pytree.tree_leaves(value_of(node)) if isinstance(leaf, torch.Tensor)]
    results += [tensor for tensor in map(value_of, nodes_in(mutated_arguments(node))) if _is_tensor(tensor)]
    shapes = {tensor.shape for tensor in results}
    if len(shapes) != 1 or len({tensor.device for tensor in results}) != 1:
        return None
    (shape,) = shapes
    if not shape or shape[0] < 2:
        return None
    types = _ARITHMETIC_TYPES if plain in ARITHMETIC else None
    if not all(_is_plain(tensor) and (types is None or tensor.dtype in types) for tensor in results):
        return None
    operands = [value for value in map(value_of, node.all_input_nodes) if _is_tensor(value)]
    fits = all(is_cut(value, shape) or _is_whole(value, shape) for value in operands)
    return shape if fits else None


def is_cut(value: Any, shape: torch.Size) -> bool:
    """Tell whether an operand has a row for every row of a shape; any other is the same for all of them."""
    return isinstance(value, torch.Tensor) and value.dim() == len(shape) and value.shape[0] == shape[0]


def _is_whole(value: torch.Tensor, shape: torch.Size) -> bool:
    return value.dim() < len(shape) or value.shape[0] == 1


def _is_plain(tensor: torch.Tensor) -> bool:
    return not is_symbolic(tensor) and tensor.is_contiguous()


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _of_embedding(node: Node) -> torch.Size | None:
    """Every row of the gradient is the sum of its tokens' rows in their order, and no row knows others."""
    value: torch.Tensor = value_of(node)
    scaled = arguments_by_name(node).get("scale_grad_by_freq", False)
    return value.shape if _is_plain(value) and not scaled else None
