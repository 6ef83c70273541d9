"""Jaxprs written out in line: calls that only group equations go, what is computed twice or never goes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from jax.extend.core import ClosedJaxpr, Literal

from lowtide.frameworks.jax.flat.program import Atom, Equation, FlatProgram, Value
from lowtide.frameworks.jax.internals import is_unspecified, user_frame

_GROUPS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr"}
"""Calls that mean nothing but their equations, with the parameter that holds those."""
_CHECKPOINTS = ("remat2", "checkpoint")
"""What `jax.checkpoint` leaves: its equations count as written, since a plan decides anew what runs again."""


def flatten(closed: ClosedJaxpr, name: str, donated: Sequence[bool] = ()) -> FlatProgram:
    """Return a closed jaxpr as a flat program.

    Calls of jitted functions and checkpointed regions are written out in line; equations that compute the same from the
    same are merged, as XLA does, and those that nobody reads are left out unless they have effects. Functions with
    derivatives of their own stay calls. O(equations).
    """
    flat = _Flat()
    held: dict[Any, Atom] = {}
    for var, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        held[var] = flat.constant(value, var.aval)
    inputs = [flat.value(var.aval) for var in closed.jaxpr.invars]
    held.update(zip(closed.jaxpr.invars, inputs, strict=True))
    outputs = flat.inline(closed.jaxpr, held)
    equations = _needed(flat.equations, outputs)
    return FlatProgram(
        name=name,
        types=flat.types,
        constants=flat.constants,
        inputs=inputs,
        equations=equations,
        outputs=outputs,
        donated=frozenset(value for value, given in zip(inputs, donated, strict=False) if given),
    )


class _Flat:
    def __init__(self) -> None:
        self.types: list[Any] = []
        self.constants: dict[Value, Any] = {}
        self.equations: list[Equation] = []
        self._known: dict[Any, tuple[Value, ...]] = {}
        self._constant_of: dict[int, Value] = {}

    def value(self, aval: Any) -> Value:
        self.types.append(aval)
        return len(self.types) - 1

    def constant(self, array: Any, aval: Any) -> Value:
        known = self._constant_of.get(id(array))
        if known is None:
            known = self._constant_of[id(array)] = self.value(aval)
            self.constants[known] = array
        return known

    def inline(self, jaxpr: Any, held: dict[Any, Atom], call: Any = None) -> list[Atom]:
        """Append a jaxpr's equations; `held` maps its inputs and constants to atoms here. Return its outputs' atoms.

        `call` is the call that they are written out from, if any.
        """
        for eqn in jaxpr.eqns:
            inputs = [_atom(var, held) for var in eqn.invars]
            inner = _inner(eqn)
            if inner is None:
                outputs: Sequence[Atom] = self._append(eqn, inputs, call)
            else:
                body, constants = inner
                inside: dict[Any, Atom] = {
                    var: self.constant(array, var.aval) for var, array in zip(body.constvars, constants, strict=True)
                }
                inside.update(zip(body.invars, inputs, strict=True))
                outputs = self.inline(body, inside, call if user_frame(eqn) is None else eqn)
            held.update(zip(eqn.outvars, outputs, strict=True))
        return [_atom(var, held) for var in jaxpr.outvars]

    def _append(self, eqn: Any, inputs: list[Atom], call: Any) -> tuple[Value, ...]:
        key = _key(eqn, inputs)
        known = None if key is None else self._known.get(key)
        if known is not None:
            return known
        outputs = tuple(self.value(var.aval) for var in eqn.outvars)
        self.equations.append(Equation(origin=eqn, inputs=tuple(inputs), outputs=outputs, call=call))
        if key is not None:
            self._known[key] = outputs
        return outputs


def _atom(var: Any, held: dict[Any, Atom]) -> Atom:
    return var if isinstance(var, Literal) else held[var]


def _inner(eqn: Any) -> tuple[Any, Sequence[Any]] | None:
    """Return the jaxpr and constants of a call that is written out in line, None for what stays an equation."""
    kind = eqn.primitive.name
    if kind in _GROUPS:
        body = eqn.params[_GROUPS[kind]]
        if kind in ("jit", "pjit") and not _plain_call(eqn.params):
            return None
        return (body.jaxpr, body.consts) if isinstance(body, ClosedJaxpr) else (body, ())
    if kind in _CHECKPOINTS:
        return eqn.params["jaxpr"], ()
    return None


def _plain_call(params: Any) -> bool:
    """Return whether a jitted call says nothing of where its arrays lie."""
    shardings = (*params["in_shardings"], *params["out_shardings"])
    return all(is_unspecified(sharding) for sharding in shardings)


def _key(eqn: Any, inputs: Iterable[Atom]) -> Any:
    """Return what is equal for equations that compute the same; None for those that must all stay."""
    if eqn.effects:
        return None
    operands = tuple(atom if isinstance(atom, int) else (_bits(atom.val), str(atom.aval)) for atom in inputs)
    key = (eqn.primitive, tuple(sorted(eqn.params.items(), key=lambda item: item[0])), operands)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _bits(literal: Any) -> Any:
    """Return a scalar so that equal bits compare equal: 0.0 and -0.0 differ, a NaN is itself."""
    return repr(literal)


def only_results(program: FlatProgram, count: int) -> FlatProgram:
    """Return a program with its first results only, and without what nobody reads then."""
    outputs = program.outputs[:count]
    return replace(program, outputs=outputs, equations=_needed(program.equations, outputs))


def _needed(equations: Sequence[Equation], outputs: Sequence[Atom]) -> list[Equation]:
    wanted = {atom for atom in outputs if isinstance(atom, int)}
    kept: list[Equation] = []
    for equation in reversed(equations):
        if equation.origin.effects or any(value in wanted for value in equation.outputs):
            kept.append(equation)
            wanted.update(equation.reads)
    return kept[::-1]
