"""Slots for the buffers of a graph."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import UsageError, VerificationError
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.live_ranges import live_ranges, storage_blocks
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import is_valid_order
from lowtide.frameworks.caffe2.sharing.slot_arrays import Intervals
from lowtide.frameworks.caffe2.sharing.slot_search import search
from lowtide.frameworks.caffe2.sharing.slots import WORK_LIMIT


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sharing:
    """Which buffers hold the same storage, one after the other."""

    slot_of: NDArray[np.int64]
    """Slot of every buffer; -1 for persistent buffers and those that are never live."""
    slot_sizes: NDArray[np.int64]
    """Bytes of every slot."""
    slot_spaces: NDArray[np.int16]
    """Memory space of every slot, as its position in the graph."""
    slot_bytes: Mapping[str, int]
    """Bytes of all slots together, by memory space name; the scratch of ops is not in a slot."""
    lower_bound_bytes: Mapping[str, int]
    """No slots for these live ranges need less, by memory space name."""
    optimal: bool
    """Whether no slots for these live ranges need less in any memory space."""


def share(
    graph: Graph,
    order: NDArray[np.int32] | None = None,
    *,
    in_place: bool = True,
    algorithm: str = "optimal",
    work_limit: int = WORK_LIMIT,
) -> Sharing:
    """Return a slot for every buffer that is live in an order of the graph's ops, the program order by default.

    Buffers may share a slot where no two of them are live at once. With `in_place`, a buffer that takes over another
    one's storage through an in-place pair is in its slot. Persistent buffers never share. `algorithm` is "greedy"
    (memonger's) or "optimal", which looks at `work_limit` slots per memory space at most and is never worse. The result
    is verified. Raises UsageError for another algorithm, a negative limit, or an order that is not valid.
    """
    if algorithm not in ("greedy", "optimal") or work_limit < 0:
        raise UsageError(f"algorithm {algorithm!r}, work limit {work_limit}: give greedy or optimal, and 0 or more")
    problem = Problem(graph, in_place=in_place)
    chosen = problem.given_order() if order is None else np.asarray(order, np.int32)
    if not is_valid_order(graph, chosen):
        raise UsageError("the order does not run every op once, after all it depends on; give a valid order")
    ranges = live_ranges(graph, problem.plan(chosen))
    blocks = storage_blocks(graph, ranges)
    slot_of_block = np.zeros(len(blocks), np.int64)
    slot_sizes: list[int] = []
    slot_spaces: list[int] = []
    totals: dict[str, int] = {}
    bounds: dict[str, int] = {}
    optimal = True
    for position, space in enumerate(graph.spaces):
        here = np.flatnonzero(blocks.spaces == position)
        intervals = Intervals(blocks.first_steps[here], blocks.last_steps[here] - 1, blocks.sizes[here])
        found = search(intervals, work_limit if algorithm == "optimal" else 0)
        _verify(intervals, found.slot_of, space.name)
        largest = np.zeros(int(found.slot_of.max(initial=-1)) + 1, np.int64)
        np.maximum.at(largest, found.slot_of, intervals.sizes)
        slot_of_block[here] = found.slot_of + len(slot_sizes)
        slot_sizes += largest.tolist()
        slot_spaces += [position] * len(largest)
        totals[space.name] = sum(largest.tolist())
        bounds[space.name] = found.lower_bound_bytes
        optimal = optimal and found.optimal
    slot_of = np.full(graph.n_buffers, -1, np.int64)
    slot_of[ranges.buffers] = slot_of_block[blocks.of_residency]
    return Sharing(
        slot_of=slot_of,
        slot_sizes=np.asarray(slot_sizes, np.int64),
        slot_spaces=np.asarray(slot_spaces, np.int16),
        slot_bytes=totals,
        lower_bound_bytes=bounds,
        optimal=optimal,
    )


def _verify(intervals: Intervals, slot_of: NDArray[np.int64], space: str) -> None:
    """Check that no block of a slot begins before the one in front of it has ended; raises VerificationError."""
    order = np.lexsort((intervals.begins, slot_of))
    former, latter = order[:-1], order[1:]
    clash = (slot_of[former] == slot_of[latter]) & (intervals.ends[former] >= intervals.begins[latter])
    if clash.any():
        slot = int(slot_of[former[np.flatnonzero(clash)[0]]])
        raise VerificationError(f"slot {slot} of space {space!r} holds two buffers that are live at once; share anew")
