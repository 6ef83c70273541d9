"""Scalars of a later run while tracing: symbols with a present value, and the conditions that were assumed of them."""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

SYMBOLIC = (torch.SymFloat, torch.SymInt, torch.SymBool)
_TAKEN_BRANCH = "propagate_real_tensors"
"""How the message of an assumption begins that was made by looking at a value."""


def new_scalar(shape_env: ShapeEnv, name: str, value: float) -> torch.SymFloat:
    """Return a symbolic float with a present value; branches on it are taken by that, and noted."""
    from torch._dynamo.source import ConstantSource  # loads TorchDynamo, which takes seconds

    source = ConstantSource(name)
    symbol = shape_env.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
    scalar: Any = shape_env.create_symfloatnode(symbol, hint=value, source=source)
    return scalar


def symbol_name(scalar: Any) -> str:
    """Return the name of the symbol behind a symbolic scalar, also where it turned out to be a constant."""
    return str(scalar.node._expr)


def hint_of(scalar: torch.SymFloat) -> float:
    """Return the present value of a symbolic float made by `new_scalar`."""
    return float(scalar.node.hint)


def number_of(shape_env: ShapeEnv, scalar: Any) -> Any:
    """Return the present value of a symbolic scalar of any kind, None where it is not known."""
    known = scalar.node.expr.xreplace(shape_env.backed_var_to_val).xreplace(shape_env.real_tensor_prop_unbacked_vals)
    return None if known.free_symbols else scalar.node.pytype(known)


def note_number(shape_env: ShapeEnv, scalar: Any, value: Any) -> str:
    """Note the present value of a scalar that was read from a tensor; returns the name of the symbol behind it.

    Branches on it can be taken then. A boolean is an integer that equals one.
    """
    (symbol,) = scalar.node.expr.free_symbols
    shape_env.set_real_tensor_prop_unbacked_vals(symbol, int(value) if isinstance(value, bool) else value)
    return str(symbol)


def number_for(scalar: Any, values: Mapping[str, Any]) -> Any:
    """Return a symbolic scalar for given values of its symbols."""
    return scalar.node.pytype(_interpreted(scalar.node.expr, values))


def assumed(shape_env: ShapeEnv) -> list[Any]:
    """Return the conditions that were assumed of scalars with a present value, each once."""
    branches = (
        check.expr
        for checks in shape_env.deferred_runtime_asserts.values()
        for check in checks
        if str(check.msg).startswith(_TAKEN_BRANCH)
    )
    return list(dict.fromkeys([*(guard.expr for guard in shape_env.guards), *branches]))


def symbols_in(condition: Any) -> list[str]:
    """Return the names of the symbols in a condition, sorted."""
    return sorted(str(symbol) for symbol in condition.free_symbols)


def holds(condition: Any, values: Mapping[str, Any]) -> bool:
    """Tell whether a condition holds for given values of its symbols."""
    return bool(_interpreted(condition, values))


def _interpreted(expression: Any, values: Mapping[str, Any]) -> Any:
    table = {symbol: values[str(symbol)] for symbol in expression.free_symbols}
    return sympy_interp(PythonReferenceAnalysis, table, expression)


@contextmanager
def silent_branches() -> Generator[None]:
    """Keep PyTorch from warning of every branch that is taken by looking at a value."""
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")

    def is_other(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(_TAKEN_BRANCH)

    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)
