"""Offsets that items should have by their hints, and which of those clash."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.packing.buffers import FREE, Buffers
from lowtide.engine.packing.items import Ints, Items, Layout

_CHUNK = 512


@dataclass(frozen=True, slots=True, eq=False)
class HintedOffsets:
    """One offset per item, and what keeping it is worth; FREE for an item without a hint that it can follow."""

    offsets: Ints
    counts: Ints
    """How many buffers of the item have their hints then."""
    size_bytes: Ints
    """The bytes of those buffers."""


def hinted_offsets(buffers: Buffers, layout: Layout, limit: int) -> HintedOffsets:
    """Return what hints ask of items, within an arena of `limit` bytes.

    If buffers that are tied together hint at different offsets, the one that most of them ask for is taken, then the
    one with most bytes, then the lowest. O(n log n).
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
    """Return rows of two items, ascending, that would share bytes they may not; FREE ones clash with none. O(n^2)."""
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
        clash = together & ~_related(items, "may_overlap", pieces[one, 4], pieces[two, 4])
        clash |= _related(items, "apart", pieces[one, 4], pieces[two, 4])
        rows.append(np.stack([owners[one[clash]], owners[two[clash]]], axis=1))
    return np.unique(np.concatenate(rows), axis=0)


def _related(items: Items, kind: str, one: Ints, two: Ints) -> NDArray[np.bool_]:
    """Return which pairs of buffers stand in a relation, `may_overlap` or `apart`."""
    rows = items.may_overlap if kind == "may_overlap" else items.apart
    if rows is None:
        return np.zeros(len(one), np.bool_)
    known = rows.owners().astype(np.int64) * len(rows) + rows.values
    return np.isin(one * len(rows) + two, known)
