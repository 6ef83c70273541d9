"""Other equations in the place of some: functions that compute the same, traced and written into a flat program."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jax.extend.core import Literal

from lowtide.frameworks.jax.flat.program import Atom, Equation, FlatProgram, Value
from lowtide.frameworks.jax.internals import ShapeDtypeStruct, make_jaxpr


class Splice:
    """A flat program that is written anew, equation by equation."""

    def __init__(self, program: FlatProgram) -> None:
        self._program = program
        self._types = list(program.types)
        self._constants = dict(program.constants)
        self._equations: list[Equation] = []
        self._instead: dict[Value, Atom] = {}

    def keep(self, equation: Equation) -> None:
        """Append an equation of the program; it reads what took the place of its operands."""
        self._equations.append(replace(equation, inputs=tuple(map(self._now, equation.inputs))))

    def trace(self, function: Callable[..., Sequence[Any]], inputs: Sequence[Atom]) -> list[Atom]:
        """Append a function of values of the program and return its results; raises what the function raises."""
        given = [self._now(atom) for atom in inputs]
        avals: list[Any] = [self._types[atom] if isinstance(atom, int) else atom.aval for atom in given]
        structs = [ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in avals]
        closed = make_jaxpr(function)(*structs)
        held: dict[Any, Atom] = dict(zip(closed.jaxpr.invars, given, strict=True))
        for var, array in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            held[var] = constant = self._new(var.aval)
            self._constants[constant] = array
        for eqn in closed.jaxpr.eqns:
            inputs_here = tuple(_atom(var, held) for var in eqn.invars)
            outputs = tuple(self._new(var.aval) for var in eqn.outvars)
            held.update(zip(eqn.outvars, outputs, strict=True))
            self._equations.append(Equation(origin=eqn, inputs=inputs_here, outputs=outputs))
        return [_atom(var, held) for var in closed.jaxpr.outvars]

    def instead(self, value: Value, atom: Atom) -> None:
        """Let what comes later read another value in the place of one."""
        self._instead[value] = atom

    def done(self) -> FlatProgram:
        """Return the program as it is written now."""
        return replace(
            self._program,
            types=self._types,
            constants=self._constants,
            equations=self._equations,
            outputs=[self._now(atom) for atom in self._program.outputs],
        )

    def _now(self, atom: Atom) -> Atom:
        return self._instead.get(atom, atom) if isinstance(atom, int) else atom

    def _new(self, aval: Any) -> Value:
        self._types.append(aval)
        return len(self._types) - 1


def _atom(var: Any, held: dict[Any, Atom]) -> Atom:
    return var if isinstance(var, Literal) else held[var]
