"""A pair of scans in chunks: the state is kept at the begin of each, and its turns run again for the way back.

What a chunk saves is there while the backward scan passes through the chunk, and for no other. Sums run in the same
order as before, so that values stay the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lowtide.frameworks.jax.flat.program import FlatProgram, Value
from lowtide.frameworks.jax.flat.splice import Splice
from lowtide.frameworks.jax.internals import lax
from lowtide.frameworks.jax.scans.pairs import ScanPair
from lowtide.frameworks.jax.scans.scan import Scan


def in_chunks(program: FlatProgram, pairs: Sequence[ScanPair]) -> FlatProgram:
    """Return a program that computes the same with these pairs in chunks; no equation may be in two of them."""
    forward = {pair.forward: pair for pair in pairs}
    backward = {pair.backward: pair for pair in pairs}
    splice = Splice(program)
    starts: dict[int, Sequence[Any]] = {}
    for position, equation in enumerate(program.equations):
        if position in forward:
            pair = forward[position]
            starts[position] = _write_forward(splice, Scan(equation), pair)
        elif position in backward:
            pair = backward[position]
            again = Scan(program.equations[pair.forward])
            _write_backward(splice, Scan(equation), again, pair, starts[pair.forward])
        else:
            splice.keep(equation)
    return splice.done()


def _write_forward(splice: Splice, scan: Scan, pair: ScanPair) -> Sequence[Any]:
    """Append the forward scan in chunks without what it saved; return the states at the begin of all chunks."""
    chunk, count = pair.chunk, pair.length // pair.chunk
    wanted = [number for number, value in enumerate(scan.stacks) if value not in pair.saved]

    def forward(*values: Any) -> list[Any]:
        constants, states, slices = scan.split(values)

        def one(states: Sequence[Any], slices: Sequence[Any]) -> Any:
            after, stacks = scan.turns(constants, states, slices, wanted, chunk)
            return after, (list(states), stacks)

        after, (starts, stacks) = scan.over(one, states, _cut(slices, chunk, count), count)
        return [*after, *_joined(stacks), *starts]

    results = splice.trace(forward, scan.inputs)
    values = [*scan.last_states, *(scan.stacks[number] for number in wanted)]
    for value, atom in zip(values, results, strict=False):
        splice.instead(value, atom)
    return results[len(values) :]


def _write_backward(splice: Splice, scan: Scan, again: Scan, pair: ScanPair, starts: Sequence[Any]) -> None:
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
        after, stacks = scan.over(one, states, cut, count)
        return [*after, *_joined(stacks)]

    inputs = [*scan.inputs[:n_whole], *again.constants, *again.slices, *others, *starts]
    for value, atom in zip((*scan.last_states, *scan.stacks), splice.trace(backward, inputs), strict=True):
        splice.instead(value, atom)


def _cut(stacks: Sequence[Any], chunk: int, count: int) -> list[Any]:
    return [lax.reshape(stack, (count, chunk, *stack.shape[1:])) for stack in stacks]


def _joined(stacks: Sequence[Any]) -> list[Any]:
    return [lax.reshape(stack, (stack.shape[0] * stack.shape[1], *stack.shape[2:])) for stack in stacks]
