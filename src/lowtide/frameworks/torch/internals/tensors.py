"""Storages and layouts of tensors, and planned values of symbolic sizes."""
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import sympy
import torch
from numpy.typing import NDArray
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

from lowtide.frameworks.torch.internals.releases import hint_of_expression, optimization_hint

_UNLIMITED = 2**62


def storage_key(tensor: torch.Tensor) -> int:
    storage: Any = tensor.untyped_storage()
    return storage._cdata


def storage_bytes(tensor: torch.Tensor) -> int:
    return hint(tensor.untyped_storage().nbytes())


def bytes_held_by(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of all storages, each once."""
    return sum({storage_key(tensor): storage_bytes(tensor) for tensor in tensors}.values())


def storage_over(memory: NDArray[np.uint8]) -> torch.UntypedStorage:
    return torch.from_numpy(memory).untyped_storage()


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a 1-D view of a tensor's memory, with gaps."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((last + 1 if tensor.numel() else 0,), (1,))


def version_of(tensor: torch.Tensor) -> int:
    """Return the number of in-place changes; 0 if not counted."""
    return 0 if tensor.is_inference() else tensor._version  # pyright: ignore[reportPrivateUsage]


def bytes_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def contiguous_copy(tensor: torch.Tensor) -> int:
    """Return the bytes of a contiguous copy; 0 if unnecessary."""
    return 0 if tensor.is_contiguous() else bytes_of(tensor)


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Return whether images are channels-last and not contiguous."""
    if tensor.dim() not in (4, 5) or tensor.is_contiguous():
        return False
    return tensor.is_contiguous(memory_format=torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d)


def is_dense(tensor: torch.Tensor) -> bool:
    return bool(torch.ops.aten.is_non_overlapping_and_dense.default(tensor))


class _PlannedSizes:
    def __init__(self) -> None:
        self.values: dict[sympy.Symbol, sympy.Integer] = {}
        self.known: dict[Any, int] = {}


_planned: WeakKeyDictionary[ShapeEnv, _PlannedSizes] = WeakKeyDictionary()


def plan_at_most(size: torch.SymInt, most: int) -> None:
    """Plan a symbolic size at `most`, or at the program's smaller limit."""
    symbol, shape_env = size.node.expr, size.node.shape_env
    if isinstance(symbol, sympy.Symbol):
        limit = shape_env.var_to_range[symbol].upper
        planned = _planned.setdefault(shape_env, _PlannedSizes())
        planned.values[symbol] = min(sympy.Integer(most), limit)
        planned.known.clear()


def upper_bound(size: Any) -> int | None:
    upper = size.node.shape_env.bound_sympy(size.node.expr).upper
    return int(upper) if isinstance(upper, sympy.Integer) and upper < _UNLIMITED else None


def hint(size: Any) -> int:
    """Return a size's planned value, or its upper bound if data-dependent."""
    if isinstance(size, torch.SymInt) and free_unbacked_symbols(size):
        bound = upper_bound(size)
        return optimization_hint(size) if bound is None else bound
    planned = _planned.get(size.node.shape_env) if isinstance(size, torch.SymInt) else None
    if planned is None:
        return optimization_hint(size)
    shape_env, expression = size.node.shape_env, size.node.expr
    if expression not in planned.known:
        with at_planned_sizes(shape_env):
            planned.known[expression] = hint_of_expression(shape_env, expression)
    return planned.known[expression]


def traced_with(size: torch.SymInt) -> int:
    return optimization_hint(size)


@contextmanager
def at_planned_sizes(shape_env: ShapeEnv) -> Generator[None]:
    planned = _planned.get(shape_env)
    values: dict[Any, Any] = shape_env.backed_var_to_val
    traced = {} if planned is None else {symbol: values[symbol] for symbol in planned.values}
    values.update({} if planned is None else planned.values)
    try:
        yield
    finally:
        values.update(traced)


def plain_number(value: Any) -> Any:
    """Return a number's planned value; 1 or 0.5 if only a run determines it."""
    if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value
    if value.node.has_hint():
        return hint(value) if isinstance(value, torch.SymInt) else value.node.hint
    return 0.5 if isinstance(value, torch.SymFloat) else 1
