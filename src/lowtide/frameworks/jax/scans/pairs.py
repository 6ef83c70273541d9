"""Find scans with backward scans."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.frameworks.jax.flat.program import Equation, FlatProgram, Splice, Value
from lowtide.frameworks.jax.internals import jax, jaxpr_as_fun, scan_counts
from lowtide.frameworks.jax.reading.sizes import bytes_of


class Scan:
    def __init__(self, equation: Equation) -> None:
        params = equation.origin.params
        n_constants, n_states = scan_counts(params)
        self.inputs = equation.inputs
        self.constants = equation.inputs[:n_constants]
        self.states = equation.inputs[n_constants : n_constants + n_states]
        self.slices = equation.inputs[n_constants + n_states :]
        self.last_states = equation.outputs[:n_states]
        self.stacks = equation.outputs[n_states:]
        self.types: Sequence[Any] = params["jaxpr"].in_avals
        self.body: Callable[..., Sequence[Any]] = jaxpr_as_fun(params["jaxpr"])
        self._params = params

    def iterate(
        self, constants: Sequence[Any], states: Sequence[Any], slices: Sequence[Any], wanted: Sequence[int], count: int
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Run `count` iterations and return the last states and the `wanted` stacks."""

        def iteration(states: Sequence[Any], slices: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            results = list(self.body(*constants, *states, *slices))
            stacked = results[len(states) :]
            return results[: len(states)], [stacked[number] for number in wanted]

        return self.scan(iteration, states, list(slices), count, self._params["unroll"])

    def scan(
        self,
        function: Callable[..., Any],
        states: Sequence[Any],
        slices: Any,
        count: int | None = None,
        unroll: int = 1,
    ) -> Any:
        return jax.lax.scan(
            function,
            list(states),
            slices,
            length=self._params["length"] if count is None else count,
            reverse=self._params["reverse"],
            unroll=unroll,
        )

    def split(self, values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        first, second = len(self.constants), len(self.constants) + len(self.states)
        return values[:first], values[first:second], values[second:]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPair:
    """A scan, its backward scan, and the values saved between them."""

    forward: int
    backward: int
    saved: tuple[Value, ...]
    """Stacks that only the backward scan reads, slice by slice."""
    saved_bytes: int
    carry_bytes: int
    length: int

    @property
    def chunk(self) -> int:
        """Iterations per chunk: the divisor of the length with the fewest saved bytes."""
        divisors = [each for each in range(1, self.length) if self.length % each == 0]
        return min(divisors, key=lambda each: (self.chunked_bytes(each), each))

    def chunked_bytes(self, chunk: int) -> int:
        return self.length // chunk * self.carry_bytes + chunk * (self.saved_bytes // self.length)


def scan_pairs(program: FlatProgram) -> list[ScanPair]:
    """Return the pairs that chunks make smaller, largest gain first."""
    readers: dict[Value, set[int]] = {}
    for position, equation in enumerate(program.equations):
        for value in equation.reads:
            readers.setdefault(value, set()).add(position)
    returned = {atom for atom in program.outputs if isinstance(atom, int)}
    pairs: list[ScanPair] = []
    for position, equation in enumerate(program.equations):
        if equation.kind != "scan" or equation.origin.effects:
            continue
        params = equation.origin.params
        stacks = [value for value in equation.outputs[scan_counts(params)[1] :] if value not in returned]
        followers = {min(readers[value]) for value in stacks if len(readers.get(value, ())) == 1}
        for follower in sorted(followers):
            saved = tuple(value for value in stacks if readers.get(value) == {follower})
            if _is_backward(program, position, follower, saved):
                pairs.append(_pair(program, position, follower, saved))
    worth = [pair for pair in pairs if pair.chunked_bytes(pair.chunk) < pair.saved_bytes]
    return sorted(worth, key=lambda pair: (pair.chunked_bytes(pair.chunk) - pair.saved_bytes, pair.forward))


def disjoint_pairs(program: FlatProgram) -> list[ScanPair]:
    used: set[int] = set()
    kept: list[ScanPair] = []
    for pair in scan_pairs(program):
        if used.isdisjoint((pair.forward, pair.backward)):
            used.update((pair.forward, pair.backward))
            kept.append(pair)
    return kept


def rewrite_pairs(
    program: FlatProgram,
    pairs: Collection[ScanPair],
    forward: Callable[[Splice, ScanPair], None],
    backward: Callable[[Splice, ScanPair], None],
) -> FlatProgram:
    writers = {pair.forward: (forward, pair) for pair in pairs} | {pair.backward: (backward, pair) for pair in pairs}
    splice = Splice(program)
    for position, equation in enumerate(program.equations):
        if position in writers:
            write, pair = writers[position]
            write(splice, pair)
        else:
            splice.keep(equation)
    return splice.finish()


def _is_backward(program: FlatProgram, forward: int, backward: int, saved: Sequence[Value]) -> bool:
    one, other = program.equations[forward], program.equations[backward]
    if other.kind != "scan" or other.origin.effects:
        return False
    there, back = one.origin.params, other.origin.params
    if there["length"] != back["length"] or there["length"] < 2 or there["reverse"] == back["reverse"]:
        return False
    unsliced = other.inputs[: sum(scan_counts(back))]
    return not set(saved).intersection(atom for atom in unsliced if isinstance(atom, int))


def _pair(program: FlatProgram, forward: int, backward: int, saved: tuple[Value, ...]) -> ScanPair:
    params: Any = program.equations[forward].origin.params
    states = program.equations[forward].outputs[: scan_counts(params)[1]]
    return ScanPair(
        forward=forward,
        backward=backward,
        saved=saved,
        saved_bytes=sum(bytes_of(program.types[value]) for value in saved),
        carry_bytes=sum(bytes_of(program.types[value]) for value in states),
        length=params["length"],
    )
