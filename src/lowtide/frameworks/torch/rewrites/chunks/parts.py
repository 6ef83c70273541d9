"""What an op does to the rows of a product: to each alone, or summed over all."""

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
from lowtide.frameworks.torch.rewrites.chunks.image_parts import IMAGE_RULES, NETWORK_RULES
from lowtide.frameworks.torch.rewrites.chunks.mean_losses import LOSS_GRADIENTS
from lowtide.frameworks.torch.rewrites.chunks.roles import SUMS, PartCall, Roles, RowPart, RowRole
from lowtide.frameworks.torch.rewrites.chunks.row_losses import MEAN
from lowtide.frameworks.torch.rewrites.chunks.rows import NO_ROWS, ProductRows, SlicedRows

aten = torch.ops.aten


VIEWS = ("view", "_unsafe_view")
"""Ops that give a tensor another shape."""
SAME = ("alias", "detach")
"""Ops that give a tensor another name."""
_OF_PIXELS = 4
"""The dimensions of a loss of pixels."""
_REDUCTIONS = ("mean", "amax", "amin", "logsumexp", "argmax", "argmin", "any", "all", "max", "min")
_POINTWISE = ("clone", "_to_copy")


def part_of(
    node: Node, roles: Roles, rows: ProductRows, device: torch.device, *, images: bool = False
) -> RowPart | None:
    """Return how to do an op for some rows, None where it mixes rows or nobody has said what it does.

    The op must stay on the `device` of the product. `roles` has the ops before it that are done by rows; others have
    those of the product, and may be `images` that go through a network. That the result is the same in real numbers is
    all that this says; whether the bits are equal is found out by running it (`trial.py`).
    """
    if node.target is operator.getitem:
        return _item(node, roles)
    target = overload_of(node.target)
    if target is None or target.namespace != "aten" or is_random(node) or mutated_arguments(node):
        return None
    if not all(leaf is None or _is_plain(leaf, device) for leaf in pytree.tree_leaves(value_of(node))):
        return None
    name = op_name(target)
    is_pointwise = name in _POINTWISE or torch.Tag.pointwise in target.tags
    rules = [_RULES.get(name) or (_pointwise if is_pointwise else None), NETWORK_RULES.get(name) if images else None]
    sources = {roles[source].rows for source in node.all_input_nodes if source in roles}
    if len(sources) > 1:
        return None
    taken = sources.pop() if sources else rows
    call = PartCall(node, arguments_by_name(node), roles, taken)
    part = next((part for rule in rules if rule is not None and (part := rule(call)) is not None), None)
    return part if part is None or part.rows != NO_ROWS else replace(part, taken=taken, rows=taken)


def _is_plain(leaf: Any, device: torch.device) -> bool:
    return (
        isinstance(leaf, torch.Tensor)
        and leaf.layout is torch.strided
        and leaf.device == device
        and not is_symbolic(leaf)
    )


def _item(node: Node, roles: Roles) -> RowPart | None:
    """Return how to take a result of several, which must have the rows; what nobody reads may be anything."""
    source, index = node.args
    if not isinstance(source, Node) or source not in roles:
        return None
    part, value = roles[source], value_of(node)
    if index in part.added:
        return replace(part, role=RowRole.ADDED, sizes=None, added=frozenset[int]())
    part = replace(part, added=frozenset[int]())
    has_rows = isinstance(value, torch.Tensor) and part.rows.leading(value.shape) is not None
    return replace(part, sizes=None) if has_rows or all(map(_reads_no_weight, node.users)) else None


def _reads_no_weight(user: Node) -> bool:
    """Tell whether an op is given the weight of all rows for nothing."""
    return user.target is aten.nll_loss_backward.default and arguments_by_name(user)["reduction"] == 0


def _pointwise(call: PartCall) -> RowPart | None:
    by_rows: set[Node] = set()
    if call.rows.leading(call.result) is None:
        return None
    for node in call.node.all_input_nodes:
        value, role = value_of(node), call.role(node)
        if not isinstance(value, torch.Tensor) or role in (RowRole.COLUMNS, *SUMS):
            return None
        if call.rows.lie_alike(value.shape, call.result):
            by_rows.add(node)
        elif role is not None or not call.rows.are_shared(value.shape, call.result):
            return None
    sizes = "size" if "size" in call.given else None
    return RowPart(RowRole.ROWS, frozenset(by_rows), sizes=sizes)


def _constant(call: PartCall) -> RowPart | None:
    return None if call.rows.leading(call.result) is None else RowPart(RowRole.ROWS, sizes="size")


def _same(call: PartCall) -> RowPart | None:
    source = call.given["self"]
    role = call.role(source) or (RowRole.ROWS if call.has_rows("self") else None)
    return None if role is None else RowPart(role, frozenset([source]))


def _view(call: PartCall) -> RowPart | None:
    source = value_of(call.given["self"])
    if not source.is_contiguous() or call.rows.leading(call.result) is None:
        return None
    return call.part("self", sizes="size")


def _transposed(call: PartCall) -> RowPart | None:
    source = call.given["self"]
    role, shape = call.role(source), call.shape(source)
    if len(shape) != 2:
        return None
    if role is RowRole.COLUMNS:
        return RowPart(RowRole.ROWS, frozenset([source]))
    return (
        RowPart(RowRole.COLUMNS, frozenset([source]))
        if role is RowRole.ROWS and call.rows.leading(shape) == 1
        else None
    )


def _product(call: PartCall) -> RowPart | None:
    left: Node = call.given["self"]
    right: Node = call.given["mat2"]
    first, second = call.role(left), call.role(right)
    if first is RowRole.ROWS and second is None and call.rows.leading(call.shape(left)) == 1:
        return RowPart(RowRole.ROWS, frozenset([left]))
    if first is RowRole.COLUMNS and second in (None, RowRole.ROWS) and call.shape(right)[0] % call.rows.count == 0:
        return RowPart(RowRole.SUM, frozenset([left, right]))
    if first is None and second is RowRole.ROWS and call.rows.leading(call.shape(right)) == 1:
        return RowPart(RowRole.SUM, frozenset([right]), frozenset([left]))
    return None


def _product_and_sum(call: PartCall) -> RowPart | None:
    added, left, right = call.given["self"], call.given["mat1"], call.given["mat2"]
    is_shared = call.role(added) is None and value_of(added).dim() < 2
    alone = is_shared and call.role(left) is RowRole.ROWS and call.role(right) is None
    return RowPart(RowRole.ROWS, frozenset([left])) if alone and call.rows.leading(call.shape(left)) == 1 else None


def _batched(call: PartCall) -> RowPart | None:
    """Each matrix of a batch is multiplied alone."""
    alone = call.keeps("self", [1, 2]) and call.keeps("mat2", [1, 2])
    return call.part("self", "mat2") if alone else None


def _along(*operands: str) -> Callable[[PartCall], RowPart | None]:
    """Return the rule of ops along one dimension."""
    return lambda call: call.part(*operands) if call.keeps(operands[0], [call.given.get("dim", 0)]) else None


def _reduced(call: PartCall) -> RowPart | None:
    dims = call.given.get("dim")
    if dims is None or dims == []:
        return None
    dims = [dims] if isinstance(dims, int) else dims
    if not call.has_rows("self"):
        return None
    return call.part("self") if call.keeps("self", dims) else None


def _summed(call: PartCall) -> RowPart | None:
    """All dimensions that count rows may be added up; with all others but the last, as the gradient of a bias is."""
    source, dims = call.given["self"], call.given.get("dim")
    shape = call.shape(source)
    if call.role(source) is not RowRole.ROWS or call.given.get("dtype") or not dims:
        return _reduced(call)
    if dims == list(range(len(shape) - 1)) and call.keeps("self", [-1]):
        return RowPart(RowRole.COLUMN_SUM, frozenset([source]))
    leading = call.rows.leading(shape)
    over_rows = leading is not None and {dim % len(shape) for dim in dims}.issuperset(range(leading))
    return RowPart(RowRole.ADDED, frozenset([source])) if over_rows else _reduced(call)


def _largest(call: PartCall) -> RowPart | None:
    return call.part("self") if call.keeps("self", [call.given.get("dim", -1)]) else None


def _row_losses(call: PartCall) -> RowPart | None:
    is_alone = call.given.get("reduction") == 0 and len(call.shape(call.given["self"])) == 2
    return call.part("self", "target") if is_alone else None


def _gradient_of_losses(call: PartCall) -> RowPart | None:
    if len(call.result) not in (2, _OF_PIXELS):
        return None
    incoming = ("grad_output",) if value_of(call.given["grad_output"]).dim() else ()
    return call.part("self", "target", *incoming, unread="" if call.given["reduction"] else "total_weight")


def _sliced(call: PartCall) -> RowPart | None:
    """A slice within rows, or one of rows: the same places of every sequence."""
    source = call.given["self"]
    if call.keeps("self", [call.given.get("dim", 0)]):
        return call.part("self")
    rows = _rows_of_slice(call.given, call.shape(source), call.rows) if call.role(source) is RowRole.ROWS else None
    return None if rows is None else RowPart(RowRole.ROWS, frozenset([source]), taken=call.rows, rows=rows)


def _slice_gradient(call: PartCall) -> RowPart | None:
    source, rows = call.given["grad_output"], call.rows
    if isinstance(rows, SlicedRows):
        is_same = call.role(source) is RowRole.ROWS and _rows_of_slice(call.given, call.result, rows.of) == rows
        return RowPart(RowRole.ROWS, frozenset([source]), taken=rows, rows=rows.of) if is_same else None
    leading = rows.leading(call.result)
    inner = leading is not None and call.given["dim"] % len(call.result) >= leading
    return call.part("grad_output", sizes="input_sizes") if inner else None


def _rows_of_slice(given: Mapping[str, Any], shape: torch.Size, rows: ProductRows) -> SlicedRows | None:
    """Return the rows that a slice of a tensor has, None where it does not take whole rows that follow one another."""
    dim: int = given.get("dim", 0) % len(shape)
    leading = rows.leading(shape)
    if leading is None or dim >= leading or rows.share(shape) > 1:
        return None
    start, stop, step = slice(given.get("start"), given.get("end"), given.get("step", 1)).indices(shape[dim])
    inner = math.prod(shape[dim + 1 : leading])
    count = rows.count // shape[dim] * (stop - start)
    return SlicedRows(count, rows, shape[dim] * inner, start * inner, stop * inner) if step == 1 and count > 0 else None


def _inserted(call: PartCall) -> RowPart | None:
    leading = call.rows.leading(call.shape(call.given["self"]))
    inner = leading is not None and call.given["dim"] % len(call.result) >= leading
    return call.part("self") if inner else None


def _permuted(call: PartCall) -> RowPart | None:
    return call.part("self") if call.keeps("self", [call.given["dim0"], call.given["dim1"]]) else None


def _reordered(call: PartCall) -> RowPart | None:
    source = call.given["self"]
    dims = [dim % len(call.result) for dim in call.given["dims"]]
    if dims == [1, 0]:
        return _transposed(call)
    leading = call.rows.leading(call.shape(source)) or 0
    return call.part("self") if dims[:leading] == list(range(leading)) else None


def _joined(call: PartCall) -> RowPart | None:
    """Tensors side by side have the same rows."""
    tensors, dim = call.given["tensors"], call.given.get("dim", 0)
    leading = call.rows.leading(call.result)
    if leading is None or dim % len(call.result) < leading:
        return None
    if any(call.role(node) not in (None, RowRole.ROWS) for node in tensors):
        return None
    alike = all(call.shape(node)[:leading] == call.result[:leading] for node in tensors)
    return RowPart(RowRole.ROWS, frozenset(tensors)) if alike else None


def _normalized(call: PartCall) -> RowPart | None:
    dims = range(-len(call.given["normalized_shape"]), 0)
    return call.part("input") if call.keeps("input", dims) else None


def _gradient_of_elements(call: PartCall) -> RowPart | None:
    """A mean divides by how many elements it is given, whatever part they are of the whole."""
    return None if call.given.get("reduction", MEAN) == MEAN else _pointwise(call)


def _padded(call: PartCall) -> RowPart | None:
    padded = len(call.given["pad"]) // 2
    return call.part("self") if call.keeps("self", [-1 - place for place in range(padded)]) else None


_RULES: dict[str, Callable[[PartCall], RowPart | None]] = {
    **dict.fromkeys(VIEWS, _view),
    **dict.fromkeys(SAME, _same),
    **dict.fromkeys(_REDUCTIONS, _reduced),
    "sum": _summed,
    **dict.fromkeys(("_softmax", "_log_softmax", "squeeze"), _along("self")),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), _along("grad_output", "output")),
    **dict.fromkeys(("full", "zeros", "ones", "empty"), _constant),
    "t": _transposed,
    "expand": _pointwise,
    "mm": _product,
    "addmm": _product_and_sum,
    "bmm": _batched,
    "transpose": _permuted,
    "permute": _reordered,
    "cat": _joined,
    "native_layer_norm": _normalized,
    "topk": _largest,
    "gather": _along("self", "index"),
    "scatter": _along("self", "index", "src"),
    "scatter_add": _along("self", "index", "src"),
    "nll_loss_forward": _row_losses,
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _gradient_of_losses),
    **dict.fromkeys(LOSS_GRADIENTS, _gradient_of_elements),
    "slice": _sliced,
    "slice_backward": _slice_gradient,
    "unsqueeze": _inserted,
    "constant_pad_nd": _padded,
    **IMAGE_RULES,
}
