"""Save states between chunks of a scan."""

from collections.abc import Mapping, Sequence
from typing import Any

from lowtide.frameworks.jax.flat.program import FlatProgram, Splice, Value
from lowtide.frameworks.jax.internals import jax
from lowtide.frameworks.jax.scans.pairs import Scan, ScanPair, rewrite_pairs


def in_chunks(program: FlatProgram, pairs: Sequence[ScanPair]) -> FlatProgram:
    """Return an equivalent program with these disjoint pairs in chunks."""
    starts: dict[ScanPair, Sequence[Any]] = {}

    def forward(splice: Splice, pair: ScanPair) -> None:
        starts[pair] = _write_forward(splice, Scan(program.equations[pair.forward]), pair)

    def backward(splice: Splice, pair: ScanPair) -> None:
        scan, recomputed = Scan(program.equations[pair.backward]), Scan(program.equations[pair.forward])
        _write_backward(splice, scan, recomputed, pair, starts[pair])

    return rewrite_pairs(program, pairs, forward, backward)


def _write_forward(splice: Splice, scan: Scan, pair: ScanPair) -> Sequence[Any]:
    chunk, count = pair.chunk, pair.length // pair.chunk
    wanted = [number for number, value in enumerate(scan.stacks) if value not in pair.saved]

    def forward(*values: Any) -> list[Any]:
        constants, states, slices = scan.split(values)

        def one_chunk(states: Sequence[Any], slices: Sequence[Any]) -> Any:
            after, stacks = scan.iterate(constants, states, slices, wanted, chunk)
            return after, (list(states), stacks)

        after, (starts, stacks) = scan.scan(one_chunk, states, _cut(slices, chunk, count), count)
        return [*after, *_joined(stacks), *starts]

    return splice.replace([*scan.last_states, *(scan.stacks[number] for number in wanted)], forward, scan.inputs)


def _write_backward(splice: Splice, scan: Scan, recomputed: Scan, pair: ScanPair, starts: Sequence[Any]) -> None:
    chunk, count = pair.chunk, pair.length // pair.chunk
    wanted = [number for number, value in enumerate(recomputed.stacks) if value in pair.saved]
    place: Mapping[Value, int] = {recomputed.stacks[number]: here for here, number in enumerate(wanted)}
    others = [atom for atom in scan.slices if not (isinstance(atom, int) and atom in place)]
    every = range(len(scan.stacks))
    n_unsliced = len(scan.constants) + len(scan.states)
    n_recomputed = len(recomputed.constants)

    def backward(*values: Any) -> list[Any]:
        constants, states, rest = scan.split(values)
        forward_constants, rest = rest[:n_recomputed], rest[n_recomputed:]
        forward_slices, rest = rest[: len(recomputed.slices)], rest[len(recomputed.slices) :]
        other_slices, begins = rest[: len(others)], rest[len(others) :]

        def one_chunk(states: Sequence[Any], here: Any) -> Any:
            begin, slices_here, others_here = here
            _, saved = recomputed.iterate(forward_constants, begin, slices_here, wanted, chunk)
            unsaved = iter(others_here)
            slices = [
                saved[place[atom]] if isinstance(atom, int) and atom in place else next(unsaved) for atom in scan.slices
            ]
            return scan.iterate(constants, states, slices, every, chunk)

        cut = (list(begins), _cut(forward_slices, chunk, count), _cut(other_slices, chunk, count))
        after, stacks = scan.scan(one_chunk, states, cut, count)
        return [*after, *_joined(stacks)]

    inputs = [*scan.inputs[:n_unsliced], *recomputed.constants, *recomputed.slices, *others, *starts]
    splice.replace([*scan.last_states, *scan.stacks], backward, inputs)


def _cut(stacks: Sequence[Any], chunk: int, count: int) -> list[Any]:
    return [jax.lax.reshape(stack, (count, chunk, *stack.shape[1:])) for stack in stacks]


def _joined(stacks: Sequence[Any]) -> list[Any]:
    return [jax.lax.reshape(stack, (stack.shape[0] * stack.shape[1], *stack.shape[2:])) for stack in stacks]
