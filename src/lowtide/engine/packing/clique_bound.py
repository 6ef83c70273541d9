"""A bound where buffers must be apart although they are not alive together: sets of which no two may share bytes."""

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.packing.items import Ints, Items

_MOST_BUFFERS = 5_000
_MOST_STARTS = 300


def heaviest_clique(items: Items) -> tuple[int, tuple[int, ...]]:
    """Return the bytes of a heavy set of buffers, no two of which may share bytes, and the items they are in.

    Greedy: a set grows from each of the 300 largest buffers by the largest that conflicts with all so far, of equals
    the one with the most conflicts. Offsets are multiples of what divides all alignments, so sizes are padded to that,
    except for the buffer on top. O(n^2) for the conflicts and every start; not tried for more than 5,000 buffers.
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


def _conflicts(items: Items, labels: Ints, label_of: NDArray[np.intp], item_of: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which pairs of buffers must not share bytes; those of one item are not said to."""
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
