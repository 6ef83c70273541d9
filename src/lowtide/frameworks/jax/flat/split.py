"""Forward and backward as two programs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lowtide.frameworks.jax.flat.flatten import Flat, needed_equations
from lowtide.frameworks.jax.flat.program import Atom, Equation, FlatProgram, Value, atom_of
from lowtide.frameworks.jax.internals import jax


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitProgram:
    first: FlatProgram
    rest: FlatProgram


def split(function: Flat, structs: Sequence[Any], n_early: int, count: int) -> SplitProgram:
    """Trace a function and split it after its first `count` results, which depend on the first `n_early` inputs.

    The second part also takes values that the first one saves. An equation that computes both parts, such as a
    `shard_map`, runs in both.
    """
    program = _traced(function, structs)
    outputs, others = program.outputs[:count], program.outputs[count:]
    late = _late_equations(program, n_early)
    first = needed_equations(
        [equation for equation in program.equations if id(equation) not in late or not equation.origin.effects], outputs
    )
    rest = program.equations
    saved: list[Value] = []
    done = {id(equation) for equation in first}
    if late.isdisjoint(done):
        rest = [equation for equation in rest if id(equation) not in done]
        made = {value for equation in first for value in equation.outputs}
        reads = [value for equation in rest for value in equation.reads]
        reads += [atom for atom in others if isinstance(atom, int)]
        saved = list(dict.fromkeys(value for value in reads if value in made))
    return SplitProgram(
        first=replace(program, equations=first, outputs=[*outputs, *saved]),
        rest=replace(program, equations=rest, inputs=[*program.inputs, *saved], outputs=others),
    )


def _late_equations(program: FlatProgram, n_early: int) -> set[int]:
    late = set(program.inputs[n_early:])
    found: set[int] = set()
    for equation in program.equations:
        if not late.isdisjoint(equation.reads):
            late.update(equation.outputs)
            found.add(id(equation))
    return found


def _traced(function: Flat, structs: Sequence[Any]) -> FlatProgram:
    def listed(*values: Any) -> list[Any]:
        return list(function(*values))

    closed = jax.make_jaxpr(listed)(*structs)
    jaxpr = closed.jaxpr
    types: list[Any] = []
    atoms: dict[Any, Atom] = {}

    def define(variables: Sequence[Any]) -> tuple[Value, ...]:
        places = range(len(types), len(types) + len(variables))
        types.extend(variable.aval for variable in variables)
        atoms.update(zip(variables, places, strict=True))
        return tuple(places)

    constants = dict(zip(define(jaxpr.constvars), closed.consts, strict=True))
    inputs = define(jaxpr.invars)
    equations: list[Equation] = []
    for eqn in jaxpr.eqns:
        operands = tuple(atom_of(variable, atoms) for variable in eqn.invars)
        equations.append(Equation(origin=eqn, inputs=operands, outputs=define(eqn.outvars)))
    outputs = [atom_of(variable, atoms) for variable in jaxpr.outvars]
    return FlatProgram(
        name="split", types=types, constants=constants, inputs=inputs, equations=equations, outputs=outputs
    )
