"""A pair of scans in chunks: the state is kept at the begin of each, and its turns run again for the way back.

What a chunk saves is there while the backward scan passes through the chunk, and for no other. Sums run in the same
order as before, so that values stay the same.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lowtide.frameworks.jax.flat.program import Equation, FlatProgram, Value
from lowtide.frameworks.jax.flat.splice import Splice
from lowtide.frameworks.jax.internals import jaxpr_as_fun, lax
from lowtide.frameworks.jax.scans.pairs import ScanPair


def in_chunks(program: FlatProgram, pairs: Sequence[ScanPair]) -> FlatProgram:
    """Return a program that computes the same with these pairs in chunks; no equation may be in two of them."""
    forward = {pair.forward: pair for pair in pairs}
    backward = {pair.backward: pair for pair in pairs}
    splice = Splice(program)
    starts: dict[int, Sequence[Any]] = {}
    for position, equation in enumerate(program.equations):
        if position in forward:
            pair = forward[position]
            starts[position] = _write_forward(splice, _Scan(equation), pair)
        elif position in backward:
            pair = backward[position]
            again = _Scan(program.equations[pair.forward])
            _write_backward(splice, _Scan(equation), again, pair, starts[pair.forward])
        else:
            splice.keep(equation)
    return splice.done()


class _Scan:
    """A scan's operands and results by their part in it, and a way to run some of its turns."""

    def __init__(self, equation: Equation) -> None:
        params = equation.origin.params
        n_constants, n_states = params["num_consts"], params["num_carry"]
        self.inputs = equation.inputs
        self.constants = equation.inputs[:n_constants]
        self.states = equation.inputs[n_constants : n_constants + n_states]
        self.slices = equation.inputs[n_constants + n_states :]
        self.last_states = equation.outputs[:n_states]
        self.stacks = equation.outputs[n_states:]
        self._params = params
        self._body: Callable[..., Sequence[Any]] = jaxpr_as_fun(params["jaxpr"])

    def turns(
        self, constants: Sequence[Any], states: Sequence[Any], slices: Sequence[Any], wanted: Sequence[int], count: int
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Run so many turns; return the states after them and the stacks with these numbers."""

        def turn(states: Sequence[Any], slices: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            results = list(self._body(*constants, *states, *slices))
            stacked = results[len(states) :]
            return results[: len(states)], [stacked[number] for number in wanted]

        return lax.scan(
            turn,
            list(states),
            list(slices),
            length=count,
            reverse=self._params["reverse"],
            unroll=self._params["unroll"],
        )

    def over_chunks(self, turn: Callable[..., Any], states: Sequence[Any], slices: Any, count: int) -> Any:
        """Run a function over chunks, in this scan's direction."""
        return lax.scan(turn, list(states), slices, length=count, reverse=self._params["reverse"])

    def split(self, values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Return values for this scan's operands as constants, states and slices."""
        first, second = len(self.constants), len(self.constants) + len(self.states)
        return values[:first], values[first:second], values[second:]


def _write_forward(splice: Splice, scan: _Scan, pair: ScanPair) -> Sequence[Any]:
    """Append the forward scan in chunks without what it saved; return the states at the begin of all chunks."""
    chunk, count = pair.chunk, pair.length // pair.chunk
    wanted = [number for number, value in enumerate(scan.stacks) if value not in pair.saved]

    def forward(*values: Any) -> list[Any]:
        constants, states, slices = scan.split(values)

        def one(states: Sequence[Any], slices: Sequence[Any]) -> Any:
            after, stacks = scan.turns(constants, states, slices, wanted, chunk)
            return after, (list(states), stacks)

        after, (starts, stacks) = scan.over_chunks(one, states, _cut(slices, chunk, count), count)
        return [*after, *_joined(stacks), *starts]

    results = splice.trace(forward, scan.inputs)
    values = [*scan.last_states, *(scan.stacks[number] for number in wanted)]
    for value, atom in zip(values, results, strict=False):
        splice.instead(value, atom)
    return results[len(values) :]


def _write_backward(splice: Splice, scan: _Scan, again: _Scan, pair: ScanPair, starts: Sequence[Any]) -> None:
    """Append the backward scan in chunks, each after its turns of the forward scan once more."""
    chunk, count = pair.chunk, pair.length // pair.chunk
    wanted = [number for number, value in enumerate(again.stacks) if value in pair.saved]
    place: Mapping[Value, int] = {again.stacks[number]: here for here, number in enumerate(wanted)}
    others = [atom for atom in scan.slices if not (isinstance(atom, int) and atom in place)]
    every = range(len(scan.stacks))
    n_whole = len(scan.constants) + len(scan.states)
    n_again = len(again.constants)

    def backward(*values: Any) -> list[Any]:
        constants, states, rest = scan.split(values)
        constants_again, rest = rest[:n_again], rest[n_again:]
        slices_again, rest = rest[: len(again.slices)], rest[len(again.slices) :]
        other_slices, begins = rest[: len(others)], rest[len(others) :]

        def one(states: Sequence[Any], here: Any) -> Any:
            begin, slices_here, others_here = here
            _, saved = again.turns(constants_again, begin, slices_here, wanted, chunk)
            kept = iter(others_here)
            slices = [
                saved[place[atom]] if isinstance(atom, int) and atom in place else next(kept) for atom in scan.slices
            ]
            return scan.turns(constants, states, slices, every, chunk)

        cut = (list(begins), _cut(slices_again, chunk, count), _cut(other_slices, chunk, count))
        after, stacks = scan.over_chunks(one, states, cut, count)
        return [*after, *_joined(stacks)]

    inputs = [*scan.inputs[:n_whole], *again.constants, *again.slices, *others, *starts]
    for value, atom in zip((*scan.last_states, *scan.stacks), splice.trace(backward, inputs), strict=True):
        splice.instead(value, atom)


def _cut(stacks: Sequence[Any], chunk: int, count: int) -> list[Any]:
    return [lax.reshape(stack, (count, chunk, *stack.shape[1:])) for stack in stacks]


def _joined(stacks: Sequence[Any]) -> list[Any]:
    return [lax.reshape(stack, (stack.shape[0] * stack.shape[1], *stack.shape[2:])) for stack in stacks]
