"""Why a capacity is too small: few items that cannot fit it, whatever becomes of the others."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.engine.packing.bound import alive_in, lower_bound, sum_by_section
from lowtide.engine.packing.buffers import FREE
from lowtide.engine.packing.items import Items
from lowtide.engine.packing.rules import RULES

_IMPOSSIBLE = 1
_MOST_LOOKS = 100_000_000
"""Pieces looked at, over all sections, for the fewest that exceed a capacity."""
_TRY_SHARE = 8
"""One try to leave items out takes at most this part of the work."""

Ids = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Items that cannot fit a capacity together."""

    items: tuple[int, ...]
    minimal: bool
    """Whether it is proven that none of them can be left out; another such set may be smaller all the same."""


def find_conflict(items: Items, suspects: Ids, capacity: int, work: int, exact_items: int) -> Conflict:
    """Return a small set of items that cannot fit a capacity; `suspects` are some that are proven not to.

    If the bytes alive in one section exceed the capacity, it starts from the fewest items that do so in any section,
    else from all suspects. Then a deletion filter takes out halves, quarters and so on, at last single items, small
    ones first, as long as the rest is proven not to fit by the bound or by exact search. If `work` (in items looked at)
    ends a proof, the items are kept, and the set is not called minimal.
    Deterministic. O(k log n) proofs for k items that remain of n.
    """
    crowd = _fewest_alive_at_once(items, capacity)
    if len(crowd) and lower_bound(items.take(crowd)).size_bytes > capacity:
        suspects = crowd
    proof = _Proof(items, capacity, work, exact_items)
    kept, minimal = _without_the_needless(suspects[np.argsort(-items.sizes[suspects], kind="stable")], proof.holds)
    return Conflict(tuple(sorted(kept.tolist())), minimal)


def _fewest_alive_at_once(items: Items, capacity: int) -> Ids:
    """Return the largest items alive in one section, as many as exceed the capacity, from the section with the fewest.

    Of equally few the largest sum. Where the sections are too many to look at all, the fullest are.
    """
    beyond = np.flatnonzero(np.where(items.fixed == FREE, 0, items.fixed) + items.sizes > capacity)
    if len(beyond):
        return beyond[:1]
    owners, pieces = items.all_pieces()
    heights = pieces[:, 3] - pieces[:, 2]
    live = sum_by_section(items, pieces, heights)
    best: Ids = np.zeros(0, np.intp)
    best_key = (len(items) + 1, 0)
    for section in np.argsort(-live, kind="stable")[: max(1, _MOST_LOOKS // max(1, len(pieces)))].tolist():
        if live[section] <= capacity:
            break
        here = np.flatnonzero(alive_in(pieces, section))
        here = here[np.argsort(-heights[here], kind="stable")]
        sums = heights[here].cumsum()
        count = int(np.searchsorted(sums, capacity, "right")) + 1
        key = (count, -int(sums[count - 1]))
        if key < best_key:
            best, best_key = np.unique(owners[here[:count]]), key
    return best


def _without_the_needless(suspects: Ids, fails: Callable[[Ids], bool | None]) -> tuple[Ids, bool]:
    """Return suspects of which none can be left out, and whether that is proven."""
    chunk, minimal = len(suspects) // 2, True
    while chunk >= 1:
        minimal = True
        end = len(suspects)
        while end > 0:
            begin = max(0, end - chunk)
            rest = np.delete(suspects, np.s_[begin:end])
            verdict = fails(rest)
            if verdict:
                suspects = rest
            minimal &= verdict is not None
            end = begin
        chunk //= 2
    return suspects, minimal


class _Proof:
    """Whether some of the items fit a capacity; all proofs share one limit of work."""

    def __init__(self, items: Items, capacity: int, work: int, exact_items: int) -> None:
        self._items = items
        self._capacity = capacity
        self._left = work
        self._share = max(1, work // _TRY_SHARE)
        self._exact_items = exact_items

    def holds(self, ids: Ids) -> bool | None:
        """Whether the items cannot fit; None where the work is used up first."""
        if not len(ids):
            return False
        items = self._items.take(np.sort(ids))
        if lower_bound(items).size_bytes > self._capacity:
            return True
        if len(items) > self._exact_items or self._left <= 0:
            return None
        if items.height(RULES["best-fit-by-size"](items)) <= self._capacity:
            return False
        fit, _, used = _native.pack_within(items.native(), self._capacity, min(self._left, self._share))
        self._left -= max(used, 1)
        return fit == _IMPOSSIBLE if fit <= _IMPOSSIBLE else None
