"""Group equations into kernels."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from lowtide.frameworks.jax.flat.program import Equation, FlatProgram, Value


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


VIEWS = _names("reshape squeeze expand_dims")

CHEAP = _names(
    """
    abs add add_any and bitcast_convert_type broadcast_in_dim ceil clamp concatenate conj convert_element_type
    copy copy_p dynamic_slice eq floor full_like gather ge gt imag integer_pow iota is_finite le lt max min mul ne
    neg not or pad real rev round select_n shift_left shift_right_arithmetic shift_right_logical sign slice square
    sub transpose xor stop_gradient reduce_precision split optimization_barrier population_count nextafter clz
    complex random_wrap random_unwrap
    """
)
"""Fused into each reader."""

EXPENSIVE = _names(
    """
    acos acosh asin asinh atan atan2 atanh cbrt cos cosh digamma div erf erf_inv erfc exp exp2 expm1 lgamma log
    log1p logistic pow rem rsqrt sin sinh sqrt tan tanh
    """
)
"""Fused into a single reader."""

REDUCTIONS = _names("argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor")
"""Operands are fused, results stored."""

PRODUCTS = frozenset(("dot_general", "ragged_dot", "ragged_dot_general"))
CONVOLUTIONS = frozenset(("conv_general_dilated",))

CALLING_PRIMITIVES = frozenset(("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"))
"""Not inlined, to keep custom derivatives."""

LIBRARIES = _names(
    "cholesky eig eigh fft ffi_call geqrf hessenberg householder_product lu pallas_call qr schur sort svd"
)
"""Their kernels allocate workspaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """An equation with stored results, and the equations fused into it."""

    root: int
    within: tuple[int, ...]
    reads: tuple[Value, ...]
    direct: frozenset[Value]
    """Values that the root reads from storage, not fused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    kernels: Sequence[Kernel]
    base: Sequence[Value]
    """The stored value that each value is a view of, or itself."""
    makers: Mapping[Value, int]


def kernels_of(program: FlatProgram) -> Kernels:
    """Group equations into kernels. O(equations times fused equations).

    An elementwise equation is fused into its only reader, or into several if it is cheap and has at most one operand of
    its size. It is stored if any reader cannot fuse it.
    """
    equations = program.equations
    users: dict[Value, list[int]] = {}
    for position, equation in enumerate(equations):
        for value in dict.fromkeys(equation.reads):
            users.setdefault(value, []).append(position)
    returned = {atom for atom in program.outputs if isinstance(atom, int)}
    kinds = [fusion_kind(equation.origin) for equation in equations]
    base = list(range(len(program.types)))
    for position, equation in enumerate(equations):
        if kinds[position] == "view" and equation.reads:
            base[equation.outputs[0]] = base[equation.reads[0]]
    makers = {value: position for position, equation in enumerate(equations) for value in equation.outputs}
    fused = _fused(equations, kinds, users, returned, makers)
    kernels = [
        _kernel(position, equations, kinds, fused, makers)
        for position in range(len(equations))
        if not fused[position] and kinds[position] != "view"
    ]
    return Kernels(kernels=kernels, base=base, makers=makers)


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
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        body = eqn.params.get(name)
        if body is not None:
            return getattr(body, "jaxpr", body)
    return None


def is_repeated(equation: Equation, equations: Sequence[Equation], makers: Mapping[Value, int]) -> bool:
    return fusion_kind(equation.origin) == "cheap" and _wide_operands(equation, equations, makers) < 2


def _fused(
    equations: Sequence[Equation],
    kinds: Sequence[str],
    users: Mapping[Value, list[int]],
    returned: Set[Value],
    makers: Mapping[Value, int],
) -> list[bool]:
    fused = [False] * len(equations)
    fuses = [kind in ("cheap", "expensive", "reduction") for kind in kinds]
    for position in range(len(equations) - 1, -1, -1):
        kind, equation = kinds[position], equations[position]
        if kind not in ("view", "cheap", "expensive"):
            continue
        readers = list(dict.fromkeys(user for value in equation.outputs for user in users.get(value, ())))
        can = all(fuses[user] for user in readers) and not any(value in returned for value in equation.outputs)
        if kind == "view":
            fuses[position] = can
        else:
            has_one_reader = _count_readers(readers, kinds, equations, users) < 2
            fuses_often = has_one_reader or is_repeated(equation, equations, makers)
            fused[position] = (can and fuses_often) or _is_filled(equation)
    return fused


def _wide_operands(equation: Equation, equations: Sequence[Equation], makers: Mapping[Value, int]) -> int:
    rank = len(equation.origin.outvars[0].aval.shape)
    wide = 0
    for atom, var in zip(equation.inputs, equation.origin.invars, strict=True):
        if isinstance(atom, int) and len(getattr(var.aval, "shape", ())) >= rank:
            maker = makers.get(atom)
            wide += maker is None or equations[maker].kind not in ("broadcast_in_dim", "iota")
    return wide


def _count_readers(readers: Sequence[int], kinds: Sequence[str], equations: Sequence[Equation], users: Any) -> int:
    count = 0
    for user in readers:
        if kinds[user] == "view":
            count += _count_readers(users.get(equations[user].outputs[0], ()), kinds, equations, users)
        else:
            count += 1
    return count


def _is_filled(equation: Equation) -> bool:
    """Return whether XLA folds an equation or computes it in its readers."""
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
        value, is_direct = waiting.pop(0)
        maker = makers.get(value)
        if maker is None or not (fused[maker] or kinds[maker] == "view"):
            if is_direct:
                direct.add(value)
            if value not in seen:
                seen.add(value)
                reads.append(value)
            continue
        if maker in within:
            continue
        within.add(maker)
        waiting.extend((read, is_direct and kinds[maker] == "view") for read in equations[maker].reads)
    return Kernel(root=root, within=tuple(sorted(within)), reads=tuple(reads), direct=frozenset(direct))
