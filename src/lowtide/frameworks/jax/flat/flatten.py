"""Inline, merge and drop equations."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend.core import ClosedJaxpr

from lowtide.frameworks.jax.flat.program import Atom, Equation, FlatProgram, Value, atom_of, run_program
from lowtide.frameworks.jax.internals import (
    checkpoint_barriers,
    checkpoint_body,
    is_unspecified,
    jax,
    user_frame,
    without_unused,
)

Flat = Callable[..., Sequence[Any]]
"""A function from leaves of arguments to leaves of results."""

_GROUPS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr"}


def flatten(closed: ClosedJaxpr, name: str, donated: Sequence[bool] = (), platform: str | None = None) -> FlatProgram:
    """Return a closed jaxpr as a flat program for a platform, by default JAX's.

    Equations with effects and calls with custom derivatives are kept. Unread values are left out, also in bodies, as
    XLA does.
    """
    closed = without_unused(closed)
    flat = _Flat()
    atoms: dict[Any, Atom] = {}
    for var, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        atoms[var] = flat.constant(value, var.aval)
    inputs = [flat.value(var.aval) for var in closed.jaxpr.invars]
    atoms.update(zip(closed.jaxpr.invars, inputs, strict=True))
    outputs = flat.inline(closed.jaxpr, atoms)
    return FlatProgram(
        name=name,
        types=flat.types,
        constants=flat.constants,
        inputs=inputs,
        equations=needed_equations(flat.equations, outputs),
        outputs=outputs,
        donated=frozenset(value for value, given in zip(inputs, donated, strict=False) if given),
        platform=platform or jax.default_backend(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshProgram:
    outer: FlatProgram
    position: int
    inner: FlatProgram

    def around(self, flat: Flat) -> Flat:
        params: Any = self.outer.equations[self.position].origin.params

        axes = "newly_manual_axes" if "newly_manual_axes" in params else "manual_axes"  # in JAX 0.10.0

        def one_device(*shards: Any) -> tuple[Any, ...]:
            return tuple(flat(*shards))

        mapped = jax.shard_map(
            one_device,
            mesh=params["mesh"],
            in_specs=tuple(params["in_specs"]),
            out_specs=tuple(params["out_specs"]),
            axis_names=set(params[axes]),
            check_vma=params["check_vma"],
        )
        return lambda *leaves: run_program(self.outer, leaves, {self.position: mapped})


def mesh_program(program: FlatProgram) -> MeshProgram | None:
    positions = [place for place, equation in enumerate(program.equations) if equation.kind == "shard_map"]
    if len(positions) != 1:
        return None
    body = program.equations[positions[0]].origin.params["jaxpr"]
    closed = body if isinstance(body, ClosedJaxpr) else ClosedJaxpr(body, ())
    inner = flatten(closed, f"{program.name} on one device", platform=program.platform)
    return MeshProgram(outer=program, position=positions[0], inner=inner)


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

    def inline(self, jaxpr: Any, atoms: dict[Any, Atom], call: Any = None) -> list[Atom]:
        barriers = checkpoint_barriers(jaxpr.eqns)
        for eqn in jaxpr.eqns:
            inputs = [atom_of(var, atoms) for var in eqn.invars]
            if not barriers.isdisjoint(eqn.outvars):
                atoms.update(zip(eqn.outvars, inputs, strict=True))
                continue
            inner = _inlined_jaxpr(eqn)
            if inner is None:
                outputs: Sequence[Atom] = self._append(eqn, inputs, call)
            else:
                body, constants = inner
                inside: dict[Any, Atom] = {
                    var: self.constant(array, var.aval) for var, array in zip(body.constvars, constants, strict=True)
                }
                inside.update(zip(body.invars, inputs, strict=True))
                outputs = self.inline(body, inside, call if user_frame(eqn) is None else eqn)
            atoms.update(zip(eqn.outvars, outputs, strict=True))
        return [atom_of(var, atoms) for var in jaxpr.outvars]

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


def _inlined_jaxpr(eqn: Any) -> tuple[Any, Sequence[Any]] | None:
    kind = eqn.primitive.name
    if kind in _GROUPS:
        body = eqn.params[_GROUPS[kind]]
        if kind in ("jit", "pjit") and not _is_unsharded(eqn.params):
            return None
        return (body.jaxpr, body.consts) if isinstance(body, ClosedJaxpr) else (body, ())
    body = checkpoint_body(eqn)  # the plan decides what to recompute
    if body is None:
        return None
    return (body.jaxpr, body.consts) if isinstance(body, ClosedJaxpr) else (body, ())


def _is_unsharded(params: Any) -> bool:
    shardings = (*params["in_shardings"], *params["out_shardings"])
    return all(is_unspecified(sharding) for sharding in shardings)


def _key(eqn: Any, inputs: Iterable[Atom]) -> Any:
    """Return a key of mergeable equations. Literals are compared by `repr`: 0.0 differs from -0.0."""
    if eqn.effects:
        return None
    operands = tuple(atom if isinstance(atom, int) else (repr(atom.val), str(atom.aval)) for atom in inputs)
    key = (eqn.primitive, tuple(sorted(eqn.params.items(), key=lambda item: item[0])), operands)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def needed_equations(
    equations: Sequence[Equation], outputs: Sequence[Atom], given: Collection[Value] = ()
) -> list[Equation]:
    """Return equations with effects and those the outputs depend on, besides `given` values."""
    wanted = {atom for atom in outputs if isinstance(atom, int)}.difference(given)
    kept: list[Equation] = []
    for equation in reversed(equations):
        if equation.origin.effects or not wanted.isdisjoint(equation.outputs):
            kept.append(equation)
            wanted.update(value for value in equation.reads if value not in given)
    return kept[::-1]
