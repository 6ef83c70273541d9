"""Keep buffers at their hinted offsets."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.effort import PackingEffort
from lowtide.engine.graph.rows import Rows
from lowtide.engine.packing.bound import lower_bound
from lowtide.engine.packing.buffers import FREE, Buffers, Ints
from lowtide.engine.packing.eject import complete
from lowtide.engine.packing.items import Items, Layout
from lowtide.engine.packing.rules import RULES
from lowtide.engine.packing.validate import broken_rule

_MOST_ITEMS = 20_000
"""With more items, all hints are kept or none; a try takes quadratic time."""
_MOST_TO_GROW = 100
"""With more items, placing the rest fails too often."""
_STEPS_PER_ITEM = 10
_WORK_SHARE = 10
_TRY_SHARE = 64
_FOUND = 0
_CHUNK = 512


Ids = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class HintedOffsets:
    """Hinted offsets of items, with the number and bytes of agreeing buffers."""

    offsets: Ints
    counts: Ints
    size_bytes: Ints


def keep_hints(buffers: Buffers, layout: Layout, packed: Ints, limit: int, effort: PackingEffort) -> Ints:
    """Return a packing within `limit` bytes that keeps many hints, starting from `packed`.

    Guarantees: never fewer hints than `packed`, possibly not the most. Deterministic.
    """
    items = layout.items
    hinted = hinted_offsets(buffers, layout, limit)
    wanted = np.flatnonzero(hinted.offsets != FREE)
    if len(wanted) == len(items):
        offsets = layout.offsets_of(buffers, hinted.offsets)
        if broken_rule(buffers, offsets, limit) is None:
            return hinted.offsets
    if len(wanted) == 0 or len(items) > _MOST_ITEMS:
        return packed
    held = items.fixed != FREE
    pairs = clashing_pairs(items, np.where(held, items.fixed, hinted.offsets))
    blocked = pairs[held[pairs[:, ::-1]]]
    hinted.offsets[blocked] = FREE
    wanted = np.setdiff1d(wanted, blocked)
    pairs = pairs[~np.isin(pairs, blocked).any(axis=1)]
    homes = np.full(len(items), FREE)
    kept = _drop_clashes(wanted, pairs, hinted)
    homes[kept] = hinted.offsets[kept]
    completed = complete(items, homes, hinted.offsets, limit, _STEPS_PER_ITEM * len(items))
    results = [packed] if completed is None else [packed, completed]
    tries = _Tries(items, hinted, limit, effort)
    best = max(results, key=tries.worth)
    if len(items) <= _MOST_TO_GROW:
        clashes = np.bincount(pairs.reshape(-1), minlength=len(items))
        fewest_clashes_first = wanted[np.lexsort((hinted.size_bytes[wanted], clashes[wanted]))]
        largest_first = wanted[np.argsort(-hinted.size_bytes[wanted], kind="stable")]
        for order, start in ((fewest_clashes_first, tries.kept_by(best)), (largest_first, np.zeros(0, np.intp))):
            results.append(_grow(order, start, best, pairs, tries))
    return max(results, key=tries.worth)


def _drop_clashes(wanted: Ids, pairs: NDArray[np.intp], hinted: HintedOffsets) -> Ids:
    dropped = np.zeros(len(hinted.offsets), np.bool_)
    while len(pairs):
        clashes = np.bincount(pairs.reshape(-1), minlength=len(dropped))
        worst = np.flatnonzero(clashes == clashes.max())
        victim = worst[np.lexsort((-worst, hinted.size_bytes[worst], hinted.counts[worst]))[0]]
        dropped[victim] = True
        pairs = pairs[(pairs != victim).all(axis=1)]
    return wanted[~dropped[wanted]]


def _grow(order: Ids, start: Ids, packed: Ints, pairs: NDArray[np.intp], tries: "_Tries") -> Ints:
    offsets = packed
    kept = np.zeros(len(packed), np.bool_)
    kept[start] = True
    chunks = [order]
    while chunks:
        blocked = np.zeros(len(packed), np.bool_)
        blocked[pairs[kept[pairs[:, 0]], 1]] = True
        blocked[pairs[kept[pairs[:, 1]], 0]] = True
        chunk = chunks.pop()
        chunk = chunk[~kept[chunk] & ~blocked[chunk]]
        if not len(chunk):
            continue
        inside = np.zeros(len(packed), np.bool_)
        inside[chunk] = True
        found = None
        if not (inside[pairs[:, 0]] & inside[pairs[:, 1]]).any():
            found = tries.pack_around(np.flatnonzero(kept | inside))
        if found is not None:
            offsets = found
            kept[tries.kept_by(found)] = True
        elif len(chunk) > 1:
            chunks += [chunk[len(chunk) // 2 :], chunk[: len(chunk) // 2]]
    return offsets


class _Tries:
    def __init__(self, items: Items, hinted: HintedOffsets, limit: int, effort: PackingEffort) -> None:
        self._items = items
        self._hinted = hinted
        self._limit = limit
        self._exact_items = effort.exact_items
        self._left = effort.exact_work // _WORK_SHARE
        self._priority_work = effort.priority_work // _WORK_SHARE // _TRY_SHARE

    def kept_by(self, offsets: Ints) -> Ids:
        return np.flatnonzero(offsets == self._hinted.offsets)

    def worth(self, offsets: Ints) -> tuple[int, int]:
        kept = self.kept_by(offsets)
        return int(self._hinted.counts[kept].sum()), int(self._hinted.size_bytes[kept].sum())

    def pack_around(self, kept: Ids) -> Ints | None:
        fixed = self._items.fixed.copy()
        fixed[kept] = self._hinted.offsets[kept]
        items = replace(self._items, fixed=fixed)
        if (fixed != FREE).all():
            return fixed
        if lower_bound(items).size_bytes > self._limit or self._left <= 0:
            return None
        rules = (RULES["best-fit-by-size"], RULES["first-fit-by-size"])
        for method in (*rules, self._penalty_loop, self._exact):
            offsets = method(items)
            self._left -= len(items)
            if offsets is not None and items.height(offsets) <= self._limit:
                return offsets
        return None

    def _penalty_loop(self, items: Items) -> Ints:
        offsets, used = _native.pack_by_priority(items.native(), self._limit, True, self._priority_work)
        self._left -= used
        return offsets

    def _exact(self, items: Items) -> Ints | None:
        work = min(self._left, max(1, self._left // _TRY_SHARE))
        if len(items) > self._exact_items or work <= 0:
            return None
        fit, offsets, used = _native.pack_within(items.native(), self._limit, work)
        self._left -= used
        return offsets if fit == _FOUND else None


def hinted_offsets(buffers: Buffers, layout: Layout, limit: int) -> HintedOffsets:
    """Return every item's hinted offset that fits an arena of `limit` bytes. O(n log n).

    If hints disagree, most buffers, then most bytes, then the lowest offset win.
    """
    items = layout.items
    result = HintedOffsets(*(np.full(len(items), value, np.int64) for value in (FREE, 0, 0)))
    if buffers.hints is None:
        return result
    ids = np.flatnonzero((buffers.hints != FREE) & (layout.item_of >= 0))
    owners, at = layout.item_of[ids], buffers.hints[ids] - layout.low[ids]
    possible = (at >= 0) & (at % items.alignment[owners] == 0) & (at + items.sizes[owners] <= limit)
    possible &= (items.fixed[owners] == FREE) | (items.fixed[owners] == at)
    ids, owners, at = ids[possible], owners[possible], at[possible]
    asked, row = np.unique(np.stack([owners, at], axis=1), axis=0, return_inverse=True)
    counts = np.bincount(row.reshape(-1), minlength=len(asked)).astype(np.int64)
    size_bytes = np.zeros(len(asked), np.int64)
    np.add.at(size_bytes, row.reshape(-1), buffers.sizes[ids])
    best_last = np.lexsort((-asked[:, 1], size_bytes, counts))
    chosen = asked[best_last, 0]
    result.offsets[chosen] = asked[best_last, 1]
    result.counts[chosen] = counts[best_last]
    result.size_bytes[chosen] = size_bytes[best_last]
    return result


def clashing_pairs(items: Items, offsets: Ints) -> NDArray[np.intp]:
    """Return ascending pairs of items that would illegally share bytes. O(n^2)."""
    owners, pieces = items.all_pieces()
    kept = offsets[owners] != FREE
    owners, pieces = owners[kept], pieces[kept]
    low, high = offsets[owners] + pieces[:, 2], offsets[owners] + pieces[:, 3]
    rows: list[NDArray[np.intp]] = [np.zeros((0, 2), np.intp)]
    for begin in range(0, len(owners), _CHUNK):
        some = np.s_[begin : begin + _CHUNK, None]
        meets = (owners[some] < owners) & (low[some] < high) & (low < high[some])
        one, two = np.nonzero(meets)
        one += begin
        together = (pieces[one, 0] < pieces[two, 1]) & (pieces[two, 0] < pieces[one, 1])
        clash = together & ~_are_related(items.may_overlap, pieces[one, 4], pieces[two, 4])
        clash |= _are_related(items.apart, pieces[one, 4], pieces[two, 4])
        rows.append(np.stack([owners[one[clash]], owners[two[clash]]], axis=1))
    return np.unique(np.concatenate(rows), axis=0)


def _are_related(rows: Rows | None, one: Ints, two: Ints) -> NDArray[np.bool_]:
    if rows is None:
        return np.zeros(len(one), np.bool_)
    known = rows.owners().astype(np.int64) * len(rows) + rows.values
    return np.isin(one * len(rows) + two, known)
