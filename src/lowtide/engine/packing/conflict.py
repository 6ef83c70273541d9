"""Find a small set of items that exceeds a capacity."""

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
_MOST_EXAMINED = 100_000_000
_TRY_SHARE = 8

Ids = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Items that exceed a capacity."""

    items: tuple[int, ...]
    minimal: bool
    """Whether every item is proven necessary."""


def find_conflict(items: Items, suspects: Ids, capacity: int, work: int, exact_items: int) -> Conflict:
    """Return a small set of items that exceeds a capacity; `suspects` are proven to exceed it.

    A deletion filter drops halves, quarters and so on. If `work` (items examined) ends a proof, the set is not minimal.
    Complexity: O(k log n) proofs for k remaining items of n. Deterministic.
    """
    fewest = _fewest_alive_at_once(items, capacity)
    if len(fewest) and lower_bound(items.take(fewest)).size_bytes > capacity:
        suspects = fewest
    proof = _Proof(items, capacity, work, exact_items)
    kept, minimal = _minimize(suspects[np.argsort(-items.sizes[suspects], kind="stable")], proof.holds)
    return Conflict(tuple(sorted(kept.tolist())), minimal)


def _fewest_alive_at_once(items: Items, capacity: int) -> Ids:
    beyond = np.flatnonzero(np.where(items.fixed == FREE, 0, items.fixed) + items.sizes > capacity)
    if len(beyond):
        return beyond[:1]
    owners, pieces = items.all_pieces()
    heights = pieces[:, 3] - pieces[:, 2]
    live = sum_by_section(items, pieces, heights)
    best: Ids = np.zeros(0, np.intp)
    best_key = (len(items) + 1, 0)
    for section in np.argsort(-live, kind="stable")[: max(1, _MOST_EXAMINED // max(1, len(pieces)))].tolist():
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


def _minimize(suspects: Ids, fails: Callable[[Ids], bool | None]) -> tuple[Ids, bool]:
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
    def __init__(self, items: Items, capacity: int, work: int, exact_items: int) -> None:
        self._items = items
        self._capacity = capacity
        self._left = work
        self._share = max(1, work // _TRY_SHARE)
        self._exact_items = exact_items

    def holds(self, ids: Ids) -> bool | None:
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
