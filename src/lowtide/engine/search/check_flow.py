"""Re-checks the flow of a proof: what an op needs in any order, in linear time and on arrays."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import OpId
from lowtide.engine.graph import Rows
from lowtide.engine.graph.structure import Structure
from lowtide.engine.search.check_cut import Cut
from lowtide.engine.search.proof import CutFlow

_MOST_BYTES = 2**62
"""What all moves of a flow may add up to, so that no sum leaves 64 bits."""


def least_by_flow(structure: Structure, cut: Cut, flow: CutFlow) -> int | None:
    """Return the bytes that a flow shows an op to need, whatever the order; None for what is no flow.

    The weak duality of flows and cuts (Ford and Fulkerson, 1956). Bytes move from the maker of a buffer to ops that
    must run before the buffer goes, no more than its size, and from an op to those it waits for. Every op passes on
    what it gets, save those that run before the op in any case, where bytes begin, and those that run after it, where
    they end. Take any closed set of ops that may have run: bytes leave it through buffers only that are kept then, so
    that these have at least what ends. A buffer that is kept whatever the set counts in full and moves nothing.
    Complexity: O((n + e) log e).
    """
    uses, waits = flow.uses, flow.dependencies
    if sum(map(sum, (uses.bytes, waits.bytes))) > _MOST_BYTES:
        return None
    if any(not len(moves.sources) == len(moves.targets) == len(moves.bytes) for moves in (uses, waits)):
        return None
    buffers, users, used_bytes = _array(uses.sources), _array(uses.targets), _array(uses.bytes)
    later, earlier, passed_bytes = _array(waits.sources), _array(waits.targets), _array(waits.bytes)
    predecessors = structure.predecessors
    if not _are_among(users, buffers, cut.users, cut.used):
        return None
    if not _are_among(later, earlier, predecessors.owners(), predecessors.values):
        return None

    before, after = _reached(predecessors, cut.op), _reached(structure.successors, cut.op)
    after[cut.op] = True
    is_made = (cut.makers < 0) | before[cut.makers]
    is_kept = np.zeros(len(cut.sizes), np.bool_)
    is_kept[cut.used[after[cut.users]]] = True
    is_kept &= is_made
    given = np.zeros(len(cut.sizes), np.int64)
    np.add.at(given, buffers, used_bytes)
    if (given > np.where(is_kept, 0, cut.sizes)).any():
        return None
    gets = np.zeros(len(before), np.int64)
    np.add.at(gets, users, used_bytes)
    np.add.at(gets, earlier, passed_bytes)
    np.subtract.at(gets, later, passed_bytes)
    makers = cut.makers[buffers]
    np.subtract.at(gets, makers[makers >= 0], used_bytes[makers >= 0])
    if gets[~before & ~after].any():
        return None
    return cut.fixed + int(cut.sizes[is_kept].sum()) + int(gets[after].sum())


def _array(column: Sequence[int]) -> NDArray[np.int64]:
    return np.fromiter(column, np.int64, len(column))


def _are_among(
    rows: NDArray[np.int64], values: NDArray[np.int64], known_rows: NDArray[np.int32], known: NDArray[np.int32]
) -> bool:
    """Tell whether all pairs are among known ones; ids stay below 2^31."""
    return bool(np.isin(rows << 32 | values, known_rows.astype(np.int64) << 32 | known).all())


def _reached(rows: Rows, op: OpId) -> NDArray[np.bool_]:
    """Return a mask of the ops that are reached from one along rows, itself not among them."""
    reached = np.zeros(len(rows), np.bool_)
    marks, offsets, values = reached.view(np.uint8).data, rows.offsets.data, rows.values.data
    waiting = [op]
    while waiting:
        each = waiting.pop()
        for place in range(offsets[each], offsets[each + 1]):
            found = values[place]
            if not marks[found]:
                marks[found] = 1
                waiting.append(found)
    return reached
