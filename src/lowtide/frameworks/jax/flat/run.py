"""Equations run: the one place where a primitive is applied."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lowtide.frameworks.jax.flat.program import Atom, Equation, FlatProgram, Value


def run_equation(equation: Equation, values: Sequence[Any]) -> Sequence[Any]:
    """Apply an equation's primitive to values, in the context it was traced in; return its results."""
    origin = equation.origin
    with origin.ctx.manager:
        result = origin.primitive.bind(*values, **origin.primitive.get_bind_params(origin.params))
    return result if origin.primitive.multiple_results else [result]


def run_program(
    program: FlatProgram, arguments: Sequence[Any], instead: Mapping[int, Callable[..., Sequence[Any]]] | None = None
) -> list[Any]:
    """Run all equations in program order; under a tracer this emits them.

    `instead` gives functions of the same values for equations at some positions.
    """
    others = instead or {}
    held: dict[Value, Any] = {**program.constants, **dict(zip(program.inputs, arguments, strict=True))}
    for position, equation in enumerate(program.equations):
        values = [read(atom, held) for atom in equation.inputs]
        results = others[position](*values) if position in others else run_equation(equation, values)
        held.update(zip(equation.outputs, results, strict=True))
    return [read(atom, held) for atom in program.outputs]


def read(atom: Atom, held: dict[Value, Any]) -> Any:
    """Return what an equation reads: the value that is held, or the literal itself."""
    return held[atom] if isinstance(atom, int) else atom.val
