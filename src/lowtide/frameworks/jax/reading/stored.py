"""Which values XLA stores: the others are computed within the kernels that read them."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from lowtide.frameworks.jax.flat.program import Equation, FlatProgram, Value
from lowtide.frameworks.jax.reading.primitives import (
    CALLING_PRIMITIVES,
    CHEAP,
    EXPENSIVE,
    REDUCTIONS,
    VIEWS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One op of the graph: an equation whose results are stored, and what is computed on the way."""

    root: int
    """Position of the equation whose results are stored."""
    within: tuple[int, ...]
    """Positions of the equations computed inside, in program order, the root last."""
    reads: tuple[Value, ...]
    """Stored values, inputs and constants that it reads, in order of first use."""
    direct: frozenset[Value]
    """Those of them that the root itself reads and that nothing can be fused in front of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """A flat program as XLA's kernels."""

    kernels: Sequence[Kernel]
    base: Sequence[Value]
    """Per value, the stored value that it is a view of; itself for all others."""
    is_stored: Sequence[bool]
    """Per value, whether it has storage of its own."""


def kernels_of(program: FlatProgram) -> Kernels:
    """Group the equations of a program into kernels. O(equations times what is fused).

    An elementwise equation is computed within its only reader; within several if it is cheap and has one operand of its
    size at most. Either only where all readers can fuse it. Reductions fuse what they read. Everything else is a kernel
    of its own. Views are neither stored nor computed.
    """
    equations = program.equations
    users: dict[Value, list[int]] = {}
    for position, equation in enumerate(equations):
        for value in dict.fromkeys(equation.reads):
            users.setdefault(value, []).append(position)
    kept = {atom for atom in program.outputs if isinstance(atom, int)}
    kinds = [fusion_kind(equation.origin) for equation in equations]
    base = list(range(len(program.types)))
    for position, equation in enumerate(equations):
        if kinds[position] == "view" and equation.reads:
            base[equation.outputs[0]] = base[equation.reads[0]]
    makers = {value: position for position, equation in enumerate(equations) for value in equation.outputs}
    fused = _fused(equations, kinds, users, kept, makers)
    is_stored = [True] * len(program.types)
    for position, equation in enumerate(equations):
        if fused[position] or kinds[position] == "view":
            for value in equation.outputs:
                is_stored[value] = False
    kernels = [
        _kernel(position, equations, kinds, fused, makers)
        for position in range(len(equations))
        if not fused[position] and kinds[position] != "view"
    ]
    return Kernels(kernels=kernels, base=base, is_stored=is_stored)


def fusion_kind(eqn: Any) -> str:
    """Return how XLA treats an equation: "view", "cheap", "expensive", "reduction" or "stored"."""
    kind = eqn.primitive.name
    if eqn.effects:
        return "stored"
    if kind in VIEWS:
        return "view"
    if kind in CHEAP:
        return "cheap"
    if kind in EXPENSIVE:
        return "expensive"
    if kind in REDUCTIONS:
        return "reduction"
    inner = called_jaxpr(eqn) if kind in CALLING_PRIMITIVES or kind in ("jit", "pjit") else None
    if inner is not None:
        kinds = {fusion_kind(each) for each in inner.eqns}
        if kinds <= {"view", "cheap"}:
            return "cheap"
        if kinds <= {"view", "cheap", "expensive"}:
            return "expensive"
    return "stored"


def called_jaxpr(eqn: Any) -> Any:
    """Return the jaxpr that a call runs, None where it has none."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        body = eqn.params.get(name)
        if body is not None:
            return getattr(body, "jaxpr", body)
    return None


def _fused(
    equations: Sequence[Equation],
    kinds: Sequence[str],
    users: Mapping[Value, list[int]],
    kept: Set[Value],
    makers: Mapping[Value, int],
) -> list[bool]:
    """Return, per equation, whether it is computed within its readers; views pass on what their readers can do."""
    fused = [False] * len(equations)
    takes = [kind in ("cheap", "expensive", "reduction") for kind in kinds]
    for position in range(len(equations) - 1, -1, -1):
        kind, equation = kinds[position], equations[position]
        if kind not in ("view", "cheap", "expensive"):
            continue
        readers = list(dict.fromkeys(user for value in equation.outputs for user in users.get(value, ())))
        can = all(takes[user] for user in readers) and not any(value in kept for value in equation.outputs)
        if kind == "view":
            takes[position] = can
        else:
            alone = _readers(readers, kinds, equations, users) < 2
            doubled = kind == "cheap" and _wide_operands(equation, equations, makers) < 2
            fused[position] = (can and (alone or doubled)) or _is_filled(equation)
    return fused


def _wide_operands(equation: Equation, equations: Sequence[Equation], makers: Mapping[Value, int]) -> int:
    """Count the operands of at least the result's rank that are not filled from smaller ones.

    Only where there is one at most does XLA compute an equation within several readers: more would be read twice.
    """
    rank = len(equation.origin.outvars[0].aval.shape)
    wide = 0
    for atom, var in zip(equation.inputs, equation.origin.invars, strict=True):
        if isinstance(atom, int) and len(getattr(var.aval, "shape", ())) >= rank:
            maker = makers.get(atom)
            wide += maker is None or equations[maker].kind not in ("broadcast_in_dim", "iota")
    return wide


def _readers(readers: Sequence[int], kinds: Sequence[str], equations: Sequence[Equation], users: Any) -> int:
    """Count the equations that read a value, directly or through views."""
    count = 0
    for user in readers:
        if kinds[user] == "view":
            count += _readers(users.get(equations[user].outputs[0], ()), kinds, equations, users)
        else:
            count += 1
    return count


def _is_filled(equation: Equation) -> bool:
    """Return whether an equation computes from nothing: XLA folds it, or computes it where it is read."""
    return not equation.inputs or (equation.kind == "broadcast_in_dim" and not equation.reads)


def _kernel(
    root: int, equations: Sequence[Equation], kinds: Sequence[str], fused: Sequence[bool], makers: dict[Value, int]
) -> Kernel:
    within: set[int] = {root}
    reads: list[Value] = []
    direct: set[Value] = set()
    fuses = kinds[root] in ("cheap", "expensive", "reduction")
    waiting = [(value, not fuses) for value in equations[root].reads]
    seen: set[Value] = set()
    while waiting:
        value, straight = waiting.pop(0)
        maker = makers.get(value)
        if maker is None or not (fused[maker] or kinds[maker] == "view"):
            if straight:
                direct.add(value)
            if value not in seen:
                seen.add(value)
                reads.append(value)
            continue
        if maker in within:
            continue
        within.add(maker)
        waiting.extend((read, straight and kinds[maker] == "view") for read in equations[maker].reads)
    return Kernel(root=root, within=tuple(sorted(within)), reads=tuple(reads), direct=frozenset(direct))
