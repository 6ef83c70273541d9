"""Symbolic scalars in traces: their current values and assumed conditions."""
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from lowtide.frameworks.torch.internals.fake_tensors import unlogged

SYMBOLIC = (torch.SymFloat, torch.SymInt, torch.SymBool)
_TAKEN_BRANCH = "propagate_real_tensors"


def new_scalar(shape_env: ShapeEnv, name: str, value: float) -> torch.SymFloat:
    """Return a symbolic float, whose value decides branches."""
    from torch._dynamo.source import ConstantSource  # loads TorchDynamo, which takes seconds

    source = ConstantSource(name)
    symbol = shape_env.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
    scalar: Any = shape_env.create_symfloatnode(symbol, hint=value, source=source)
    return scalar


def symbol_name(scalar: Any) -> str:
    """Return the symbol of a scalar, even of a constant."""
    return str(scalar.node._expr)


def hint_of(scalar: torch.SymFloat) -> float:
    return float(scalar.node.hint)


def number_of(shape_env: ShapeEnv, scalar: Any) -> Any:
    known = scalar.node.expr.xreplace(shape_env.backed_var_to_val).xreplace(shape_env.real_tensor_prop_unbacked_vals)
    return None if known.free_symbols else scalar.node.pytype(known)


def note_number(shape_env: ShapeEnv, scalar: Any, value: Any) -> str:
    """Record the current value of a scalar read from a tensor; return its symbol."""
    (symbol,) = scalar.node.expr.free_symbols
    shape_env.set_real_tensor_prop_unbacked_vals(symbol, int(value) if isinstance(value, bool) else value)
    return str(symbol)


def number_for(scalar: Any, values: Mapping[str, Any]) -> Any:
    return scalar.node.pytype(_interpreted(scalar.node.expr, values))


def assumed(shape_env: ShapeEnv) -> list[Any]:
    """Return the conditions that tracing assumed."""
    branches = (
        check.expr
        for checks in shape_env.deferred_runtime_asserts.values()
        for check in checks
        if str(check.msg).startswith(_TAKEN_BRANCH)
    )
    return list(dict.fromkeys([*(guard.expr for guard in shape_env.guards), *branches]))


def symbols_in(condition: Any) -> list[str]:
    return sorted(str(symbol) for symbol in condition.free_symbols)


def holds(condition: Any, values: Mapping[str, Any]) -> bool:
    return bool(_interpreted(condition, values))


def _interpreted(expression: Any, values: Mapping[str, Any]) -> Any:
    table = {symbol: values[str(symbol)] for symbol in expression.free_symbols}
    return sympy_interp(PythonReferenceAnalysis, table, expression)


def silent_branches() -> AbstractContextManager[None]:
    """Suppress warnings about branches decided by current values."""
    return unlogged("torch.fx.experimental.symbolic_shapes", lambda record: str(record.msg).startswith(_TAKEN_BRANCH))
