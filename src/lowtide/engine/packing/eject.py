"""Complete a partial packing by pushing out items."""

from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.packing.buffers import FREE, Ints
from lowtide.engine.packing.items import Items

_AT_HOME = 4
"""Cost of pushing out an item at home; others cost 1."""


def complete(items: Items, start: Ints, homes: Ints, limit: int, steps: int) -> Ints | None:
    """Return a packing of at most `limit` bytes, or None if `steps` placements reach none.

    `start` holds offsets of placed items, `homes` preferred ones, both FREE for none. Source: ejection chains (Glover
    1996). Complexity: O(n log n) per step. Deterministic.
    """
    offsets = np.where(items.fixed == FREE, start, items.fixed)
    pushed_out = np.ones(len(items), np.int64)
    waiting = [(-int(items.sizes[item]), int(item)) for item in np.flatnonzero(offsets == FREE)]
    heapify(waiting)
    while waiting and steps > 0:
        steps -= 1
        _, item = heappop(waiting)
        most = limit - int(items.sizes[item])
        if most < 0:
            return None
        for other in _place(items, item, offsets, int(homes[item]), most, _costs(items, offsets, homes, pushed_out)):
            offsets[other] = FREE
            pushed_out[other] += 1
            heappush(waiting, (-int(items.sizes[other]), other))
        if offsets[item] == FREE:
            return None
    if waiting:
        return None
    for item in np.flatnonzero((homes != FREE) & (offsets != homes) & (items.fixed == FREE)).tolist():
        home, (_, below, above) = int(homes[item]), _blocked_intervals(items, item, offsets)
        if home + int(items.sizes[item]) <= limit and not ((below < home) & (home < above)).any():
            offsets[item] = home
    return offsets


def _costs(items: Items, offsets: Ints, homes: Ints, pushed_out: Ints) -> NDArray[np.float64]:
    costs = np.where(offsets == homes, _AT_HOME, 1) * pushed_out.astype(np.float64)
    costs[items.fixed != FREE] = np.inf
    return costs


def _place(items: Items, item: int, offsets: Ints, home: int, most: int, costs: NDArray[np.float64]) -> list[int]:
    owners, below, above = _blocked_intervals(items, item, offsets)
    step = int(items.alignment[item])
    candidates = np.unique(np.concatenate([[0, max(home, 0)], -(-above // step) * step, below // step * step]))
    candidates = candidates[(candidates >= 0) & (candidates <= most)]
    price = np.zeros(len(candidates))
    order = np.argsort(below, kind="stable")
    finite = np.where(np.isinf(costs[owners]), 0.0, costs[owners])
    walls = np.isinf(costs[owners])
    for figures, scale in ((finite, 1.0), (walls.astype(np.float64), 1e15)):
        begun = np.concatenate([[0.0], figures[order].cumsum()])[np.searchsorted(below[order], candidates, "left")]
        ends = np.argsort(above, kind="stable")
        over = np.concatenate([[0.0], figures[ends].cumsum()])[np.searchsorted(above[ends], candidates, "right")]
        price += scale * (begun - over)
    if not len(candidates) or price.min() >= 1e15:
        return []
    cheapest = np.flatnonzero(price == price.min())
    at_home = cheapest[candidates[cheapest] == home]
    offset = int(candidates[at_home[0] if len(at_home) else cheapest[0]])
    offsets[item] = offset
    return np.unique(owners[(below < offset) & (offset < above)]).tolist()


def _blocked_intervals(items: Items, item: int, offsets: Ints) -> tuple[NDArray[np.intp], Ints, Ints]:
    if items.rectangles:
        near = (items.first < items.last[item]) & (items.first[item] < items.last) & (offsets != FREE)
        near[item] = False
        others = np.flatnonzero(near)
        return others, offsets[others] - items.sizes[item], offsets[others] + items.sizes[others]
    owners, pieces = items.all_pieces()
    there = np.flatnonzero((owners != item) & (offsets[owners] != FREE))
    rows: list[tuple[NDArray[np.intp], Ints, Ints]] = []
    for first, last, low, high, label in items.pieces[items.piece_rows[item] : items.piece_rows[item + 1]].tolist():
        theirs = pieces[there]
        meets = (theirs[:, 0] < last) & (first < theirs[:, 1])
        if items.may_overlap is not None:
            meets &= ~np.isin(theirs[:, 4], items.may_overlap[label])
        if items.apart is not None:
            meets |= np.isin(theirs[:, 4], items.apart[label])
        theirs, whose = theirs[meets], owners[there[meets]]
        rows.append((whose, offsets[whose] + theirs[:, 2] - high, offsets[whose] + theirs[:, 3] - low))
    whose, below, above = (np.concatenate(column) for column in zip(*rows, strict=True))
    return whose, below, above
