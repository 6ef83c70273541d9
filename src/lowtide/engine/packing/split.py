"""Parts of a packing problem that can be solved alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.packing.items import Items

_MOST_ROUNDS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Subproblem:
    """Items that overlap no others in time, and the `base` bytes below them, taken by items alive throughout."""

    ids: NDArray[np.intp]
    base: int


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A split of items: the parts to solve, and offsets for those at the bottom of a part; -1 for all others."""

    parts: tuple[Subproblem, ...]
    offsets: NDArray[np.int64]


def split(items: Items) -> Split:
    """Split items at every moment that none of them spans; items alive throughout a part go to its bottom.

    Without those, the rest may split again. No smallest arena is lost: what is alive throughout conflicts with all the
    others, so exchanging it with what lies below it changes no sum. If items are in pieces, fixed, or have partners,
    the split is by time only.
    """
    offsets = np.full(len(items), -1, np.int64)
    if items.apart is not None:
        return Split((Subproblem(np.arange(len(items)), 0),), offsets)
    done: list[Subproblem] = []
    todo = [Subproblem(np.arange(len(items)), 0)]
    for _ in range(_MOST_ROUNDS):
        if not todo:
            break
        todo = [piece for part in todo for piece in _by_time(items, part)]
        rest: list[Subproblem] = []
        for part in todo:
            bottom = _bottom(items, part)
            if not len(bottom):
                done.append(part)
                continue
            ends = part.base + np.cumsum(items.sizes[bottom])
            offsets[bottom] = ends - items.sizes[bottom]
            others = np.setdiff1d(part.ids, bottom, assume_unique=True)
            if len(others):
                rest.append(Subproblem(others, int(ends[-1])))
        todo = rest
    return Split((*done, *todo), offsets)


def _by_time(items: Items, part: Subproblem) -> list[Subproblem]:
    ids = part.ids[np.argsort(items.first[part.ids], kind="stable")]
    reach = np.maximum.accumulate(items.last[ids])
    cuts = np.flatnonzero(items.first[ids][1:] >= reach[:-1]) + 1
    return [Subproblem(np.sort(piece), part.base) for piece in np.split(ids, cuts)]


def _bottom(items: Items, part: Subproblem) -> NDArray[np.intp]:
    """Return the items that may go to the bottom of a part: alive throughout, and what lies on them stays aligned."""
    if not items.plain:
        return np.zeros(0, np.intp)
    ids = part.ids
    throughout = (items.first[ids] == items.first[ids].min()) & (items.last[ids] == items.last[ids].max())
    step = int(np.lcm.reduce(np.unique(items.alignment[ids])))
    return ids[throughout & (items.sizes[ids] % step == 0)]
