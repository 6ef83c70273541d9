"""A memo of the fake results of ops."""
# pyright: reportPrivateUsage=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager
from torch.fx import Node

from lowtide.frameworks.torch.internals.nodes import compute_fake, map_arguments, value_of
from lowtide.frameworks.torch.internals.tensors import memory_of, storage_bytes, storage_key

ATEN = torch.ops.aten
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_UNKNOWN = object()


@dataclass(frozen=True, slots=True)
class _Form:
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    elements_on: int | None


class FakeMemo:
    """A memo of `compute_fake`, for programs with many ops of few forms, such as chunks.

    It keeps single strided results of fixed sizes. A hit takes 0.1 ms instead of 0.3 ms.
    """

    def __init__(self) -> None:
        self._known: dict[Any, _Form] = {}

    def value(self, node: Node, given: Callable[[Node], Any] = value_of, like: torch.Tensor | None = None) -> Any:
        op = node.target
        if not isinstance(op, OpOverload) or torch.Tag.inplace_view in op.tags or len(op._schema.returns) != 1:
            return compute_fake(node, given, like)
        args, kwargs = map_arguments(node, given)
        first = args[0] if args else None
        aliased = op._schema.returns[0].alias_info
        if aliased is not None and aliased.is_write:
            written = _written(op, args, kwargs)
            return compute_fake(node, given, like) if written is None else written
        is_aliased = aliased is not None
        key = _form_of((op, args, tuple(kwargs.items())))
        if key is _UNKNOWN or op.is_view is not is_aliased or not isinstance(first, FakeTensor):
            return compute_fake(node, given, like)
        form = _sliced(*args, **kwargs) if op is ATEN.slice.Tensor else self._known.get(key)
        if form is not None:
            return _tensor(form, first)
        value = compute_fake(node, given, like)
        self._store(key, value, first if is_aliased else None)
        return value

    def _store(self, key: Any, value: Any, base: FakeTensor | None) -> None:
        if _form_of(value) is _UNKNOWN or not isinstance(value, FakeTensor):
            return
        elements_on = None
        if base is not None:
            elements_on = int(value.storage_offset() - base.storage_offset())
            if value is base or storage_key(value) != storage_key(base):
                return
        elif value.storage_offset() or storage_bytes(value) != memory_of(value).nbytes:
            return
        self._known[key] = _Form(tuple(value.shape), value.stride(), value.dtype, value.device, elements_on)


def _written(op: Any, args: Any, kwargs: Any) -> FakeTensor | None:
    wanted = op._schema.returns[0].alias_info.before_set
    for place, argument in enumerate(op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.before_set == wanted:
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            return given if isinstance(given, FakeTensor) else None
    return None


def _form_of(value: Any) -> Any:
    if isinstance(value, FakeTensor):
        size, stride = tuple(value.shape), value.stride() if value.layout == torch.strided else ()
        fixed = all(type(each) is int for each in (*size, *stride, value.storage_offset()))
        plain = value.layout == torch.strided and value.constant is None and not (value.is_conj() or value.is_neg())
        return (size, stride, value.dtype, value.device) if fixed and plain else _UNKNOWN
    if isinstance(value, (list, tuple)):
        parts = tuple(_form_of(each) for each in value)
        return _UNKNOWN if any(part is _UNKNOWN for part in parts) else parts
    return (type(value), value) if isinstance(value, (*_PLAIN, OpOverload)) else _UNKNOWN


def _sliced(base: FakeTensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> _Form:
    rows = range(base.shape[dim])[start:end:step]
    size, stride = list(base.shape), list(base.stride())
    elements_on = rows.start * stride[dim]
    size[dim], stride[dim] = len(rows), stride[dim] * step
    return _Form(tuple(size), tuple(stride), base.dtype, base.device, elements_on)


def _tensor(form: _Form, first: FakeTensor) -> FakeTensor:
    mode = first.fake_mode
    if form.elements_on is None:
        own = torch.empty_strided(form.size, form.stride, dtype=form.dtype, device="meta")
        return FakeTensor(mode, own, form.device)
    with torch.no_grad(), in_kernel_invocation_manager(mode):
        view = torch.as_strided(first, form.size, form.stride, int(first.storage_offset()) + form.elements_on)
    return FakeTensor(mode, view, form.device)
