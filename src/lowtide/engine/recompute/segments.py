"""Segments of repeated layers: what is handed on between them stays, so that one layer's trade is that of all."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import Place
from lowtide.engine.recompute.floor import can_be_remade, first_and_last_use
from lowtide.engine.recompute.periods import repeated_stretch
from lowtide.engine.recompute.program import Program

Buffers = NDArray[np.bool_]
"""Some of all buffers: per buffer, whether it is one of them."""


@dataclass(frozen=True, slots=True, eq=False)
class HandedOn:
    """What crosses the places of the first part of a base order, up to the place where it turns."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    """Per buffer, the place that allocates it, and that of its last use up to the turn."""
    crosses: NDArray[np.bool_]
    """Per buffer, whether it is allocated before the turn, and is not there from the start."""
    bytes: NDArray[np.int64]
    """Per place, how much is allocated by then and used after it, up to the turn."""

    def over(self, cuts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return, per buffer, whether it is handed on over one of some places, ascending."""
        return self.crosses & (np.searchsorted(cuts, self.last) > np.searchsorted(cuts, self.first))


def handed_on(program: Program, turn: Place) -> HandedOn:
    """Return what is handed on before a turn, in O(n + e)."""
    users, sizes = program.problem.graph.structure.users, program.counted_sizes
    first, _ = first_and_last_use(program)
    last = first.copy()
    places = program.places[users.values]
    is_before = places <= turn
    np.maximum.at(last, users.owners()[is_before], places[is_before])
    crosses = (first >= 0) & (first < turn)
    change = np.zeros(turn + 2, np.int64)
    np.add.at(change, first[crosses], sizes[crosses])
    np.add.at(change, last[crosses], -sizes[crosses])
    return HandedOn(first, last, crosses, np.cumsum(change)[:turn])


class Layers:
    """The repeated layers before a turn, cut where least is handed on from one to the next."""

    def __init__(self, crossing: HandedOn, boundaries: NDArray[np.int64], remade: Buffers) -> None:
        self._crossing, self._boundaries, self._remade = crossing, boundaries, remade

    def kept_between_segments(self, layers: int, growth: float) -> Buffers:
        """Return, per buffer, whether it can be made again and is handed on between segments of layers.

        The last segment, whose backward pass comes first, has so many layers: while it runs again, all else that is
        kept is there. The others are longer by `growth` for every layer after them, whose bytes are free by then.
        """
        ends: list[int] = []
        passed, at = 0, len(self._boundaries) - 1
        while at >= 0:
            ends.append(at)
            length = int(layers + growth * passed)
            passed, at = passed + length, at - length
        return self._crossing.over(self._boundaries[ends[::-1]]) & self._remade


def repeated_layers(program: Program, turn: Place) -> Layers | None:
    """Return the layers that a program repeats before a turn; None where it repeats none.

    Where what is handed on between layers is kept, what is dropped of a layer can be made again within it, and the
    best choice for one layer is that for all alike.
    """
    stretch = repeated_stretch(program, turn)
    if stretch is None:
        return None
    crossing = handed_on(program, turn)
    within = crossing.bytes[stretch.first : stretch.first + stretch.period]
    phases = stretch.first + np.flatnonzero(within == within.min())
    phase = int(phases[np.argmin((stretch.end - 1 - phases) % stretch.period)])
    boundaries = np.arange(phase, stretch.end, stretch.period)
    return Layers(crossing, boundaries, can_be_remade(program.problem.graph))
