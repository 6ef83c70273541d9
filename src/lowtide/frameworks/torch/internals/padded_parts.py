"""Parts of tensors that ranks cannot share evenly, padded to the size of the largest part.

FSDP2 pads the storage of a parameter's part, since collectives exchange equal sizes, but the part ends before. Programs
use the padded part, with state and gradients of the same size, so all ranks have one program. Padding stays zero:
gradients are padded with zeros, and element-wise updates of zeros by zeros are zeros.
"""
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils.weak import WeakIdKeyDictionary

from lowtide.frameworks.torch.internals.distributed import distributed_as, is_distributed, local_part
from lowtide.frameworks.torch.internals.fake_tensors import is_fake
from lowtide.frameworks.torch.internals.runtime import without_modes
from lowtide.frameworks.torch.internals.tensors import storage_key

_rows: Any = WeakIdKeyDictionary()
"""Rows of the largest part, by parameter that is shared unevenly."""
_padded: Any = WeakIdKeyDictionary()
"""The padded part over the storage of a part."""
_OWN_ROWS = 2**40
"""Ends of traced slices from here on mean the rows of a rank's own part, by the parameter's number."""


def share_unevenly(parameter: torch.Tensor, rows: int) -> None:
    """Note the rows of a parameter's largest part."""
    _rows[parameter] = rows


def part_of(tensor: torch.Tensor, owner: torch.Tensor | None = None) -> torch.Tensor:
    """Return this rank's part of a DTensor, padded; other tensors unchanged.

    `owner` is the parameter of a gradient or of optimizer state. A part whose storage has no padding gets another one.
    """
    part = local_part(tensor)
    rows = _rows.get(tensor if owner is None else owner)
    if rows is None or not is_distributed(tensor) or part.shape[0] == rows:
        return part
    shape = (rows, *part.shape[1:])
    strides = torch.empty(shape, device="meta").stride()
    if is_fake(part) or part.is_meta:
        return part.new_empty_strided(shape, strides)
    known = _padded.get(part)
    if known is None or known.untyped_storage().data_ptr() != part.untyped_storage().data_ptr():
        with without_modes(), torch.no_grad():  # a program may be traced
            known = _padded[part] = _made(part, shape, strides)
    return known


def _made(part: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    size = torch.Size(shape).numel()
    if part.storage_offset() == 0 and part.untyped_storage().nbytes() == size * part.element_size():
        return torch.empty(0, dtype=part.dtype, device=part.device).set_(part.untyped_storage(), 0, shape, strides)
    padded = torch.zeros(shape, dtype=part.dtype, device=part.device)
    padded[: part.shape[0]] = part
    part.data = padded[: part.shape[0]]
    return padded


def follow_padded(tensor: torch.Tensor, padded: torch.Tensor) -> None:
    """Let a DTensor's part use the storage that its padded part has now."""
    part = local_part(tensor)
    if part is not padded:
        part.data = padded[: part.shape[0]]


def as_owned(padded: torch.Tensor, owner: torch.Tensor) -> torch.Tensor:
    """Wrap a padded part as a DTensor like its owner, without the padding. Other tensors stay."""
    if not is_distributed(owner):
        return padded
    return distributed_as(padded[: local_part(owner).shape[0]] if owner in _rows else padded, owner)


def traced_rows(padded: torch.Tensor, owner: torch.Tensor, number: int) -> torch.Tensor:
    """Return the rows of a traced padded part and of its gradient that this rank owns; other tensors unchanged.

    They are all rows until `use_own_rows`, so that the traced program is the same on all ranks.
    """
    if owner not in _rows:
        return padded
    rows = _first_rows(padded.detach(), number).requires_grad_(padded.requires_grad)
    rows.grad = None if padded.grad is None else _first_rows(padded.grad, number)
    return rows


def padded_gradient(padded: torch.Tensor, owner: torch.Tensor, number: int, rows: torch.Tensor) -> torch.Tensor:
    """Return the padded gradient of a parameter whose own rows `traced_rows` returned, or are new ones."""
    if owner not in _rows:
        return rows
    if padded.grad is not None and storage_key(padded.grad) == storage_key(rows):
        return padded.grad
    made = torch.zeros_like(padded)
    _first_rows(made, number).copy_(rows)
    return made


def _first_rows(padded: torch.Tensor, number: int) -> torch.Tensor:
    return torch.ops.aten.slice.Tensor(padded, 0, 0, _OWN_ROWS + number)


def use_own_rows(graph: Graph, owners: Sequence[torch.Tensor]) -> None:
    """Let slices of a traced program end where this rank's parts of the parameters do."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.slice.Tensor):
        end: Any = node.args[3] if len(node.args) > 3 else None
        if isinstance(end, int) and _OWN_ROWS <= end < _OWN_ROWS + len(owners):
            node.args = (*node.args[:3], local_part(owners[end - _OWN_ROWS]).shape[0])
            _drop_plain_views(node)


def _drop_plain_views(node: Node) -> None:
    """Remove views of the same shape, which name the traced rows, also of aliases."""
    for user in list(node.users):
        if user.target is torch.ops.aten.view.default and user.meta["val"].shape == node.meta["val"].shape:
            user.replace_all_uses_with(node)
            node.graph.erase_node(user)
            _drop_plain_views(node)
            return
        if user.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            _drop_plain_views(user)
