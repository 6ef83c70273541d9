"""Equations to run and rewrite."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jax.extend.core import Literal

from lowtide.frameworks.jax.internals import jax, struct_like

Value = int
"""A position in a program's types."""
Atom = Value | Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    origin: Any
    inputs: tuple[Atom, ...]
    outputs: tuple[Value, ...]
    call: Any = None
    """The innermost inlined call around it with a recorded line."""

    @property
    def kind(self) -> str:
        return self.origin.primitive.name

    @property
    def reads(self) -> tuple[Value, ...]:
        return tuple(atom for atom in self.inputs if isinstance(atom, int))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatProgram:
    """A flat program."""

    name: str
    types: Sequence[Any]
    """Abstract values, with shape and dtype."""
    constants: Mapping[Value, Any]
    """Arrays that the function closes over."""
    inputs: Sequence[Value]
    equations: Sequence[Equation]
    outputs: Sequence[Atom]
    donated: frozenset[Value] = frozenset()
    platform: str = field(default_factory=jax.default_backend)
    """Where it runs: "cpu" or an accelerator."""


def run_equation(equation: Equation, values: Sequence[Any]) -> Sequence[Any]:
    origin = equation.origin
    with origin.ctx.manager:
        result = origin.primitive.bind(*values, **origin.primitive.get_bind_params(origin.params))
    return result if origin.primitive.multiple_results else [result]


def run_program(
    program: FlatProgram,
    arguments: Sequence[Any],
    replacements: Mapping[int, Callable[..., Sequence[Any]]] | None = None,
) -> list[Any]:
    """Run all equations and return the results. Under a tracer this emits them.

    `replacements` are functions to run instead of equations, by position.
    """
    others = replacements or {}
    contents: dict[Value, Any] = {**program.constants, **dict(zip(program.inputs, arguments, strict=True))}
    for position, equation in enumerate(program.equations):
        values = [content_of(atom, contents) for atom in equation.inputs]
        results = others[position](*values) if position in others else run_equation(equation, values)
        contents.update(zip(equation.outputs, results, strict=True))
    return [content_of(atom, contents) for atom in program.outputs]


def content_of(atom: Atom, contents: Mapping[Value, Any]) -> Any:
    return contents[atom] if isinstance(atom, int) else atom.val


def atom_of(var: Any, atoms: Mapping[Any, Atom]) -> Atom:
    return var if isinstance(var, Literal) else atoms[var]


class Splice:
    def __init__(self, program: FlatProgram) -> None:
        self._program = program
        self._types = list(program.types)
        self._constants = dict(program.constants)
        self._equations: list[Equation] = []
        self._replacements: dict[Value, Atom] = {}

    def keep(self, equation: Equation) -> None:
        self._equations.append(replace(equation, inputs=tuple(map(self._current, equation.inputs))))

    def _trace(self, function: Callable[..., Sequence[Any]], inputs: Sequence[Atom]) -> list[Atom]:
        given = [self._current(atom) for atom in inputs]
        closed = jax.make_jaxpr(function)(
            *(struct_like(self._types[atom] if isinstance(atom, int) else atom.aval) for atom in given)
        )
        atoms: dict[Any, Atom] = dict(zip(closed.jaxpr.invars, given, strict=True))
        for var, array in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            atoms[var] = constant = self._new(var.aval)
            self._constants[constant] = array
        for eqn in closed.jaxpr.eqns:
            operands = tuple(atom_of(var, atoms) for var in eqn.invars)
            outputs = tuple(self._new(var.aval) for var in eqn.outvars)
            atoms.update(zip(eqn.outvars, outputs, strict=True))
            self._equations.append(Equation(origin=eqn, inputs=operands, outputs=outputs))
        return [atom_of(var, atoms) for var in closed.jaxpr.outvars]

    def replace(
        self, values: Sequence[Value], function: Callable[..., Sequence[Any]], inputs: Sequence[Atom]
    ) -> list[Atom]:
        """Trace a function whose first results replace `values` from here on; return its other results."""
        results = self._trace(function, inputs)
        self._replacements.update(zip(values, results, strict=False))
        return results[len(values) :]

    def finish(self) -> FlatProgram:
        return replace(
            self._program,
            types=self._types,
            constants=self._constants,
            equations=self._equations,
            outputs=[self._current(atom) for atom in self._program.outputs],
        )

    def _current(self, atom: Atom) -> Atom:
        return self._replacements.get(atom, atom) if isinstance(atom, int) else atom

    def _new(self, aval: Any) -> Value:
        self._types.append(aval)
        return len(self._types) - 1
