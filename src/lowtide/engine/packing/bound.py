"""Lower bounds of the arena."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import Section
from lowtide.engine.packing.buffers import FREE, Ints
from lowtide.engine.packing.items import Items

_MOST_SECTIONS = 1000
_MOST_BUFFERS = 5_000
_MOST_STARTS = 300


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound and its items."""

    size_bytes: int
    holders: tuple[int, ...]


def lower_bound(items: Items) -> Bound:
    """Return the largest sum of bytes alive in one section, or the end of the highest fixed item if larger.

    Padding for alignment counts, except for the topmost item; allowed overlap is subtracted. Complexity: O(n log n)
    without pairs that must be apart.
    """
    ends = np.where(items.fixed == FREE, 0, items.fixed) + items.sizes
    top = int(ends.argmax()) if len(items) else -1
    best = Bound(int(ends[top]), (top,)) if top >= 0 else Bound(0, ())
    best = _sums(items, 1, best)
    if items.apart is not None:
        size, holders = heaviest_clique(items)
        best = Bound(size, holders) if size > best.size_bytes else best
    step = int(np.gcd.reduce(items.alignment))
    reaches_under = bool((items.pieces[:, 2] > 0).any())
    return best if step == 1 or reaches_under or items.may_overlap is not None else _sums(items, step, best)


def live_bytes(items: Items) -> Ints:
    """Return bytes alive per section; allowed overlap counts twice."""
    owners, pieces = items.all_pieces()
    return sum_by_section(items, pieces, _own_bytes(owners, pieces))


def sum_by_section(items: Items, pieces: Ints, heights: Ints) -> Ints:
    """Return the sum of `heights` alive per section. O(pieces + sections)."""
    live = np.zeros(items.n_sections + 1, np.int64)
    np.add.at(live, pieces[:, 0], heights)
    np.subtract.at(live, pieces[:, 1], heights)
    return live.cumsum()[:-1]


def alive_in(pieces: Ints, section: Section) -> NDArray[np.bool_]:
    return (pieces[:, 0] <= section) & (section < pieces[:, 1])


def _own_bytes(owners: Ints, pieces: Ints) -> Ints:
    own = pieces[:, 3] - pieces[:, 2]
    shared = np.unique(owners[1:][(owners[1:] == owners[:-1]) & (pieces[1:, 4] != pieces[:-1, 4])])
    for item in shared.tolist():
        rows = np.flatnonzero(owners == item)
        for row in rows[np.argsort(-own[rows], kind="stable")].tolist():
            others = rows[(rows != row) & (own[rows] > 0)]
            meets = (pieces[others, 0] < pieces[row, 1]) & (pieces[row, 0] < pieces[others, 1])
            meets &= (pieces[others, 2] < pieces[row, 3]) & (pieces[row, 2] < pieces[others, 3])
            larger = (own[others] > own[row]) | ((own[others] == own[row]) & (others < row))
            if (meets & larger).any():
                own[row] = 0
    return own


def _discounts(items: Items, pieces: Ints) -> Ints:
    if items.may_overlap is None:
        return np.zeros(len(pieces), np.int64)
    sizes, off = (np.zeros(len(items.may_overlap), np.int64) for _ in range(2))
    np.maximum.at(sizes, pieces[:, 4], pieces[:, 3] - pieces[:, 2])
    one, other = items.may_overlap.owners().astype(np.int64), items.may_overlap.values.astype(np.int64)
    np.add.at(off, one[one < other], np.minimum(sizes[one], sizes[other])[one < other])
    return off[pieces[:, 4]]


def _sums(items: Items, step: int, best: Bound) -> Bound:
    owners, pieces = items.all_pieces()
    own = _own_bytes(owners, pieces)
    padding = np.where(own > 0, -pieces[:, 3] % step, 0)
    live = sum_by_section(items, pieces, np.maximum(own + padding - _discounts(items, pieces), 0))
    for section in np.argsort(-live, kind="stable")[:_MOST_SECTIONS].tolist():
        if int(live[section]) <= best.size_bytes:
            break
        here = alive_in(pieces, section)
        size = int(live[section]) - int(padding[here].max())
        if size > best.size_bytes:
            best = Bound(size, tuple(np.unique(owners[here]).tolist()))
    return best


def heaviest_clique(items: Items) -> tuple[int, tuple[int, ...]]:
    """Return the bytes and items of a heavy set of buffers that pairwise must not share bytes.

    Greedy, from each of the 300 largest buffers. Complexity: O(n^2) per start; returns 0 for more than 5,000 buffers.
    """
    owners, pieces = items.all_pieces()
    labels, first_piece, label_of = np.unique(pieces[:, 4], return_index=True, return_inverse=True)
    if not 0 < len(labels) <= _MOST_BUFFERS or (pieces[:, 2] > 0).any():
        return 0, ()
    conflict = _conflicts(items, labels, label_of, owners[first_piece])
    sizes = (pieces[:, 3] - pieces[:, 2])[first_piece]
    step = int(np.gcd.reduce(items.alignment))
    padding = -sizes % step
    ranks = np.lexsort((-conflict.sum(axis=1), -sizes))
    conflict, sizes, padding = conflict[ranks][:, ranks], sizes[ranks], padding[ranks]
    best, members = 0, np.zeros(0, np.intp)
    for start in range(min(len(labels), _MOST_STARTS)):
        clique = [start]
        free = conflict[start].copy()
        while free.any():
            following = int(free.argmax())
            clique.append(following)
            free &= conflict[following]
        total = int((sizes + padding)[clique].sum() - padding[clique].max())
        if total > best:
            best, members = total, np.asarray(clique)
    return best, tuple(np.unique(owners[first_piece][ranks[members]]).tolist())


def _conflicts(items: Items, labels: Ints, label_of: NDArray[np.intp], item_of: Ints) -> NDArray[np.bool_]:
    pieces, n = items.all_pieces()[1], len(labels)
    conflict = np.zeros((n, n), np.bool_)
    for first, last, own in zip(pieces[:, 0].tolist(), pieces[:, 1].tolist(), label_of.tolist(), strict=True):
        conflict[own, label_of[(pieces[:, 0] < last) & (first < pieces[:, 1])]] = True
    place = np.full(int(labels.max()) + 1, -1, np.int64)
    place[labels] = np.arange(n)
    for rows, value in ((items.may_overlap, False), (items.apart, True)):
        if rows is not None:
            one, two = rows.owners().astype(np.int64), rows.values.astype(np.int64)
            known = (one < len(place)) & (two < len(place))
            one, two = place[one[known]], place[two[known]]
            known = (one >= 0) & (two >= 0)
            conflict[one[known], two[known]] = value
    conflict[item_of[:, None] == item_of] = False
    return conflict
