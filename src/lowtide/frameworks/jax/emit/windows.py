"""An order held: what passes through a hold between two windows of runs, so that none of them changes its window."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lowtide.core.index_spaces import OpId, Place
from lowtide.frameworks.jax.flat.program import Value
from lowtide.frameworks.jax.reading.read import JaxTranslation


@dataclass(frozen=True, slots=True)
class Crossing:
    """What is held between two windows."""

    values: tuple[Value, ...]
    """What the kernels of the next window start from, and what those of the last one made for later."""
    results: tuple[Value, ...]
    """Results of the program that the last window made and nothing reads any more: they only have to be there."""


def crossings(translation: JaxTranslation, runs: Sequence[OpId], length: int) -> dict[Place, Crossing]:
    """Return, by the place of its first run, what is held before each window of so many runs.

    Everything that a window makes is read within it or passes through the hold; whatever the next window reads that was
    there before passes through it, too. Inputs and constants are not held: XLA would copy them. Windows begin where
    something runs again for the first time, if anything does: what comes before, a forward pass as a rule, then stays
    what it is where it stands alone, and XLA merges both. O(runs + reads).
    """
    program, base = translation.program, translation.kernels.base
    given = {*program.inputs, *program.constants}
    returned = {base[atom] for atom in program.outputs if isinstance(atom, int)} - given
    read_later = _read_later(translation, runs)
    found: dict[Place, Crossing] = {}
    before = 0
    for start in range(_first_rerun(runs) or length, len(runs), length):
        last, following = runs[before:start], runs[start : start + length]
        made = dict.fromkeys(value for op in last for value in _outputs(translation, op))
        inside = {value for op in last for value in translation.kernels.kernels[op].reads}
        ends = (value for value in made if value in read_later[start] and value not in inside)
        values = dict.fromkeys((*ends, *_starts(translation, following, given)))
        results = tuple(value for value in made if value in returned - read_later[start] - inside)
        found[start] = Crossing(tuple(values), results)
        before = start
    return found


def _first_rerun(runs: Sequence[OpId]) -> Place | None:
    seen: set[OpId] = set()
    for place, op in enumerate(runs):
        if op in seen:
            return place
        seen.add(op)
    return None


def _starts(translation: JaxTranslation, window: Sequence[OpId], given: set[Value]) -> Iterator[Value]:
    """Iterate what a window reads that was there before it."""
    made: set[Value] = set()
    for op in window:
        yield from (value for value in translation.kernels.kernels[op].reads if value not in made | given)
        made.update(_outputs(translation, op))


def _read_later(translation: JaxTranslation, runs: Sequence[OpId]) -> dict[Place, set[Value]]:
    """Return, per place, the values whose contents there are read at that place or later."""
    alive: set[Value] = set()
    found: dict[Place, set[Value]] = {}
    for place in range(len(runs) - 1, -1, -1):
        alive = alive.difference(_outputs(translation, runs[place])).union(
            translation.kernels.kernels[runs[place]].reads
        )
        found[place] = alive
    return found


def _outputs(translation: JaxTranslation, op: OpId) -> tuple[Value, ...]:
    return translation.program.equations[translation.kernels.kernels[op].root].outputs
