"""Textbook checkpointing as drops: what crosses a few cuts through the forward pass stays, the rest is made again."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import Place
from lowtide.engine.recompute.floor import can_be_remade, first_and_last_use
from lowtide.engine.recompute.program import Drops, Program, first_run_at
from lowtide.engine.recompute.segments import handed_on

_RATIO = 1.3
"""From one number of segments to the next that is tried."""


def checkpoint_drops(program: Program, turn: Place) -> Iterator[Drops]:
    """Yield what segments of the ops before a place drop, which is where a training step turns: from one to very many.

    Segments hold about as many bytes that are used after the turn, and end where least is handed on within the forward
    pass: between the blocks of a network that repeats one, so that checkpointing block by block is among them, as are
    segments of about the square root of all ops. Each drops all that is used after the turn but what it hands on; the
    last one drops nothing.

    Source: Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost. O(n + e) for each yielded.
    """
    first, last = first_and_last_use(program)
    crossing, sizes = handed_on(program, turn), program.counted_sizes
    saved = can_be_remade(program.problem.graph) & crossing.crosses & (last > turn)
    weight = np.bincount(first[saved], weights=sizes[saved], minlength=turn)[:turn].cumsum() if turn else np.zeros(0)
    moment, last_use = first_run_at(turn), program.native.last_use
    tried: set[tuple[Place, ...]] = set()
    count = 1.0
    while turn and weight[-1] > 0 and count <= turn:
        cuts = _cuts(crossing.bytes, weight, int(count))
        count = max(count * _RATIO, count + 1)
        if tuple(cuts) in tried:
            continue
        tried.add(tuple(cuts))
        is_handed_on = crossing.over(np.asarray(cuts))
        dropped = saved & ~is_handed_on & (first <= cuts[-1]) & (last_use >= moment)
        # What is handed on but not used after the turn, such as a sum of which a cast is saved: without it, a segment
        # would be made again from all those before it.
        kept = is_handed_on & (crossing.last < turn) & (last_use < moment)
        listed = np.flatnonzero(dropped | kept)
        rows = np.column_stack([np.full(len(listed), moment), listed]).astype(np.int32)
        yield Drops(np.asarray([moment], np.int32), rows)


def _cuts(handed_on: NDArray[np.int64], weight: NDArray[np.float64], count: int) -> list[Place]:
    """Return places after which segments end, ascending: one a stretch of equal weight, where least is handed on."""
    levels = float(weight[-1]) * np.arange(count + 1) / (count + 1)
    ends: list[int] = np.searchsorted(weight, levels, side="left").tolist()
    cuts: list[Place] = []
    for number in range(1, count + 1):
        middle = ends[number]
        low = max((ends[number - 1] + middle) // 2, cuts[-1] + 1 if cuts else 0)
        high = (middle + (ends[number + 1] if number < count else len(weight) - 1)) // 2 + 1
        if low >= high:
            continue
        stretch = handed_on[low:high]
        least = np.flatnonzero(stretch == stretch.min())
        cuts.append(low + int(least[np.argmin(np.abs(least + low - middle))]))
    return cuts or [0]
