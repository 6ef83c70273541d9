"""Rules by op: how it treats the rows of a region, in real numbers."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.hints import is_symbolic
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.operators import op_name, overload_of
from lowtide.frameworks.torch.reading.effects import arguments_by_name, is_random, mutated_arguments
from lowtide.frameworks.torch.rewrites.chunks.image_rules import IMAGE_RULES, NETWORK_RULES
from lowtide.frameworks.torch.rewrites.chunks.losses import LOSS_GRADIENTS, MEAN, NONE
from lowtide.frameworks.torch.rewrites.chunks.rule import (
    SUMS,
    ChunkedOp,
    ChunkedOps,
    ProductRows,
    RowRole,
    Rule,
    RuleCall,
    SlicedRows,
    along,
    argument_of,
    only_if,
)

aten = torch.ops.aten

VIEWS = ("view", "_unsafe_view")
ALIASES = ("alias", "detach")
_OF_PIXELS = 4
_ALONG_DIMS = (
    *("mean", "amax", "amin", "logsumexp", "argmax", "argmin", "any", "all", "max", "min"),
    *("_softmax", "_log_softmax", "squeeze", "topk"),
)
_POINTWISE = ("clone", "_to_copy", "convert_element_type")


def chunked_op(
    node: Node, ops: ChunkedOps, rows: ProductRows, device: torch.device, *, images: bool = False
) -> ChunkedOp | None:
    """Return how to compute an op for one chunk, or None if it mixes rows or has no rule.

    `ops` are earlier ops of the region; other operands have `rows`.
    """
    if node.target is operator.getitem:
        return _item(node, ops)
    target = overload_of(node.target)
    if target is None or target.namespace not in ("aten", "prims") or is_random(node) or mutated_arguments(node):
        return None
    if not all(leaf is None or _is_plain(leaf, device) for leaf in pytree.tree_leaves(value_of(node))):
        return None
    name = op_name(target)
    is_pointwise = name in _POINTWISE or torch.Tag.pointwise in target.tags
    rules = [RULES.get(name) or (_pointwise if is_pointwise else None), NETWORK_RULES.get(name) if images else None]
    sources = {ops[source].rows for source in node.all_input_nodes if source in ops}
    if len(sources) > 1:
        return None
    operand_rows = sources.pop() if sources else rows
    call = RuleCall(node, arguments_by_name(node), ops, operand_rows)
    found = next((found for rule in rules if rule is not None and (found := rule(call)) is not None), None)
    return found and found.with_rows(operand_rows)


def _is_plain(leaf: Any, device: torch.device) -> bool:
    return (
        isinstance(leaf, torch.Tensor)
        and leaf.layout is torch.strided
        and leaf.device == device
        and not is_symbolic(leaf)
    )


def _item(node: Node, ops: ChunkedOps) -> ChunkedOp | None:
    source, index = node.args
    if not isinstance(source, Node) or source not in ops:
        return None
    found, value = ops[source], value_of(node)
    if index in found.partial_sums:
        return replace(found, role=RowRole.PARTIAL_SUM, sizes=None, partial_sums=frozenset[int]())
    has_rows = isinstance(value, torch.Tensor) and found.rows.leading_dims(value.shape) is not None
    if not has_rows and not all(map(_ignores_total_weight, node.users)):
        return None
    return replace(found, sizes=None, partial_sums=frozenset[int]())


def _ignores_total_weight(user: Node) -> bool:
    return user.target is aten.nll_loss_backward.default and arguments_by_name(user)["reduction"] == NONE


def _pointwise(call: RuleCall) -> ChunkedOp | None:
    by_rows: set[Node] = set()
    if call.rows.leading_dims(call.result) is None:
        return None
    for node in call.node.all_input_nodes:
        value, role = value_of(node), call.role(node)
        if not isinstance(value, torch.Tensor) or role in (RowRole.COLUMNS, *SUMS):
            return None
        if call.rows.match(value.shape, call.result):
            by_rows.add(node)
        elif role is not None or not call.rows.are_broadcast(value.shape, call.result):
            return None
    sizes = "size" if "size" in call.given else None
    return ChunkedOp(RowRole.ROWS, frozenset(by_rows), sizes=sizes)


def _constant(call: RuleCall) -> ChunkedOp | None:
    return None if call.rows.leading_dims(call.result) is None else ChunkedOp(RowRole.ROWS, sizes="size")


def _alias(call: RuleCall) -> ChunkedOp | None:
    source = call.given["self"]
    role = call.role(source)
    if role is None and call.rows.leading_dims(call.shape(source)) is not None:
        role = RowRole.ROWS
    return None if role is None else ChunkedOp(role, frozenset([source]))


def _view(call: RuleCall) -> ChunkedOp | None:
    source = value_of(call.given["self"])
    if not source.is_contiguous() or call.rows.leading_dims(call.result) is None:
        return None
    return call.row_wise("self", sizes="size")


def _transposed(call: RuleCall) -> ChunkedOp | None:
    source = call.given["self"]
    role, shape = call.role(source), call.shape(source)
    if len(shape) != 2:
        return None
    if role is RowRole.COLUMNS:
        return ChunkedOp(RowRole.ROWS, frozenset([source]))
    is_by_rows = role is RowRole.ROWS and call.rows.leading_dims(shape) == 1
    return ChunkedOp(RowRole.COLUMNS, frozenset([source])) if is_by_rows else None


def _product(call: RuleCall) -> ChunkedOp | None:
    left: Node = call.given["self"]
    right: Node = call.given["mat2"]
    first, second = call.role(left), call.role(right)
    if first is RowRole.ROWS and second is None and call.rows.leading_dims(call.shape(left)) == 1:
        return ChunkedOp(RowRole.ROWS, frozenset([left]))
    if first is RowRole.COLUMNS and second in (None, RowRole.ROWS) and call.shape(right)[0] % call.rows.count == 0:
        return ChunkedOp(RowRole.SUM, frozenset([left, right]))
    if first is None and second is RowRole.ROWS and call.rows.leading_dims(call.shape(right)) == 1:
        return ChunkedOp(RowRole.SUM, frozenset([right]), frozenset([left]))
    return None


def _product_and_bias(call: RuleCall) -> ChunkedOp | None:
    bias, left, right = call.given["self"], call.given["mat1"], call.given["mat2"]
    has_bias = call.role(bias) is None and value_of(bias).dim() < 2
    is_by_rows = call.role(left) is RowRole.ROWS and call.rows.leading_dims(call.shape(left)) == 1
    return ChunkedOp(RowRole.ROWS, frozenset([left])) if has_bias and is_by_rows and call.role(right) is None else None


def _along_last(*operands: str, count: Callable[[Mapping[str, Any]], int]) -> Rule:
    def rule(call: RuleCall) -> ChunkedOp | None:
        dims = [*range(-count(call.given), 0)]
        are_inner = all(call.are_inner(dims, call.shape(call.given[name])) for name in operands)
        return call.row_wise(*operands) if are_inner else None

    return rule


def _sum(call: RuleCall) -> ChunkedOp | None:
    source = call.given["self"]
    shape = call.shape(source)
    dims = set(call.dims("dim", len(shape)) or ())
    leading = call.rows.leading_dims(shape)
    if call.role(source) is RowRole.ROWS and not call.given.get("dtype") and dims and leading is not None:
        if dims == set(range(len(shape) - 1)) and call.are_inner(-1, shape):
            return ChunkedOp(RowRole.COLUMN_SUM, frozenset([source]))
        if dims.issuperset(range(leading)):
            return ChunkedOp(RowRole.PARTIAL_SUM, frozenset([source]))
    return along("self")(call)


def _row_losses(call: RuleCall) -> ChunkedOp | None:
    is_by_rows = call.given.get("reduction") == NONE and len(call.shape(call.given["self"])) == 2
    return call.row_wise("self", "target") if is_by_rows else None


def _loss_gradient(call: RuleCall) -> ChunkedOp | None:
    if len(call.result) not in (2, _OF_PIXELS):
        return None
    incoming = ("grad_output",) if value_of(call.given["grad_output"]).dim() else ()
    return call.row_wise("self", "target", *incoming, unread="" if call.given["reduction"] else "total_weight")


def _slice(call: RuleCall) -> ChunkedOp | None:
    source = call.given["self"]
    if call.keeps_rows("self", "dim"):
        return call.row_wise("self")
    rows = _sliced_rows(call, call.shape(source), call.rows) if call.role(source) is RowRole.ROWS else None
    return None if rows is None else ChunkedOp(RowRole.ROWS, frozenset([source]), operand_rows=call.rows, rows=rows)


def _slice_gradient(call: RuleCall) -> ChunkedOp | None:
    source, rows = call.given["grad_output"], call.rows
    if isinstance(rows, SlicedRows):
        is_same = call.role(source) is RowRole.ROWS and _sliced_rows(call, call.result, rows.of) == rows
        return ChunkedOp(RowRole.ROWS, frozenset([source]), operand_rows=rows, rows=rows.of) if is_same else None
    is_inner = call.are_inner(argument_of(call.node, "dim"), call.result)
    return call.row_wise("grad_output", sizes="input_sizes") if is_inner else None


def _sliced_rows(call: RuleCall, shape: torch.Size, rows: ProductRows) -> SlicedRows | None:
    dims, leading = call.dims("dim", len(shape)), rows.leading_dims(shape)
    if dims is None or leading is None or dims[0] >= leading or rows.entries_per_row(shape) > 1:
        return None
    given: Mapping[str, Any] = call.given
    length = shape[dims[0]]
    start, stop, step = slice(given.get("start"), given.get("end"), given.get("step", 1)).indices(length)
    inner = math.prod(shape[dims[0] + 1 : leading])
    count = rows.count // length * (stop - start)
    return SlicedRows(count, rows, length * inner, start * inner, stop * inner) if step == 1 and count > 0 else None


def _unsqueeze(call: RuleCall) -> ChunkedOp | None:
    leading = call.rows.leading_dims(call.shape(call.given["self"]))
    dims = call.dims("dim", len(call.result))
    return call.row_wise("self") if leading is not None and dims and dims[0] >= leading else None


def _permute(call: RuleCall) -> ChunkedOp | None:
    dims = call.dims("dims", len(call.result)) or ()
    if dims == (1, 0):
        return _transposed(call)
    leading = call.rows.leading_dims(call.shape(call.given["self"])) or 0
    return call.row_wise("self") if dims[:leading] == tuple(range(leading)) else None


def _concatenation(call: RuleCall) -> ChunkedOp | None:
    tensors, result = call.given["tensors"], call.result
    leading = call.rows.leading_dims(result)
    if not call.are_inner(argument_of(call.node, "dim"), result):
        return None
    if any(call.role(node) not in (None, RowRole.ROWS) for node in tensors):
        return None
    have_rows = all(call.shape(node)[:leading] == result[:leading] for node in tensors)
    return ChunkedOp(RowRole.ROWS, frozenset(tensors)) if have_rows else None


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(VIEWS, _view),
    **dict.fromkeys(ALIASES, _alias),
    **dict.fromkeys(_ALONG_DIMS, along("self")),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), along("grad_output", "output")),
    **dict.fromkeys(("full", "zeros", "ones", "empty"), _constant),
    "sum": _sum,
    "t": _transposed,
    "expand": _pointwise,
    "mm": _product,
    "addmm": _product_and_bias,
    "bmm": _along_last("self", "mat2", count=lambda _: 2),
    "transpose": along("self", dims=("dim0", "dim1")),
    "permute": _permute,
    "cat": _concatenation,
    "native_layer_norm": _along_last("input", count=lambda given: len(given["normalized_shape"])),
    "gather": along("self", "index"),
    "scatter": along("self", "index", "src"),
    "scatter_add": along("self", "index", "src"),
    "nll_loss_forward": _row_losses,
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _loss_gradient),
    # a mean divides by the elements of a chunk
    **dict.fromkeys(LOSS_GRADIENTS, only_if(lambda call: call.given.get("reduction", MEAN) != MEAN, _pointwise)),
    "slice": _slice,
    "slice_backward": _slice_gradient,
    "unsqueeze": _unsqueeze,
    "constant_pad_nd": _along_last("self", count=lambda given: len(given["pad"]) // 2),
    **IMAGE_RULES,
}
