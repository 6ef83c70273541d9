"""Symbolic sizes: the value that a size is planned at, by default the one it was traced with."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols, optimization_hint

_UNLIMITED = 2**62
"""Sizes that PyTorch does not limit are below some figure like this."""


class _Largest:
    """The symbols of one program that are planned at their largest value, and the sizes that follow from them."""

    def __init__(self) -> None:
        self.values: dict[sympy.Symbol, sympy.Integer] = {}
        self.known: dict[Any, int] = {}


_largest: WeakKeyDictionary[ShapeEnv, _Largest] = WeakKeyDictionary()


def plan_at_most(size: torch.SymInt, most: int) -> None:
    """Let all sizes that depend on one be planned as if that one had its largest value.

    Where the program itself limits it to less than `most`, that is the largest.
    """
    symbol, shape_env = size.node.expr, size.node.shape_env
    if isinstance(symbol, sympy.Symbol):
        limit = shape_env.var_to_range[symbol].upper
        largest = _largest.setdefault(shape_env, _Largest())
        largest.values[symbol] = min(sympy.Integer(most), limit)
        largest.known.clear()


def most(size: Any) -> int | None:
    """Return the most that a number can be that is known only when the program runs; None where nothing limits it.

    PyTorch knows a limit of rows that are selected from others, and of what `torch._check` was told.
    """
    upper = size.node.shape_env.bound_sympy(size.node.expr).upper
    return int(upper) if isinstance(upper, sympy.Integer) and upper < _UNLIMITED else None


def hint(size: Any) -> int:
    """Return the value that a symbolic integer is planned at; an integer as it is.

    A size that depends on the values of tensors is planned at the most that it can be, where that is known.
    """
    if isinstance(size, torch.SymInt) and free_unbacked_symbols(size):
        known = most(size)
        return optimization_hint(size) if known is None else known
    largest = _largest.get(size.node.shape_env) if isinstance(size, torch.SymInt) else None
    if largest is None:
        return optimization_hint(size)
    shape_env, expression = size.node.shape_env, size.node.expr
    if expression not in largest.known:
        with at_largest(shape_env):
            largest.known[expression] = shape_env.optimization_hint(expression)
    return largest.known[expression]


def traced_with(size: torch.SymInt) -> int:
    """Return the value that a symbolic integer was traced with."""
    return optimization_hint(size)


@contextmanager
def at_largest(shape_env: ShapeEnv) -> Generator[None]:
    """Let PyTorch take the values that sizes are planned at for those that they were traced with."""
    largest = _largest.get(shape_env)
    values: dict[Any, Any] = shape_env.backed_var_to_val
    traced = {} if largest is None else {symbol: values[symbol] for symbol in largest.values}
    values.update({} if largest is None else largest.values)
    try:
        yield
    finally:
        values.update(traced)
