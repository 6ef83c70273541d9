"""Slots for a graph's buffers, and their offsets."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import UsageError, VerificationError
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.live_ranges import live_ranges, storage_blocks
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import is_valid_order
from lowtide.frameworks.caffe2.sharing.slot_search import Integers, Intervals, greedy, search, slot_sizes
from lowtide.frameworks.caffe2.sharing.slots import WORK_LIMIT


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sharing:
    """Slots for a graph's buffers."""

    slot_of: Integers
    """Slot of every buffer, -1 if it is persistent or never live."""
    slot_sizes: Integers
    slot_spaces: NDArray[np.int16]
    slot_bytes: Mapping[str, int]
    """By memory space name, without scratch."""
    lower_bound_bytes: Mapping[str, int]
    """By memory space name, for these live ranges."""
    optimal: bool
    """Whether the slots meet every lower bound."""


def share(
    graph: Graph,
    order: NDArray[np.int32] | None = None,
    *,
    in_place: bool = True,
    algorithm: str = "optimal",
    work_limit: int = WORK_LIMIT,
) -> Sharing:
    """Return slots for the buffers that are live in an order of the ops, by default the program order.

    In-place pairs share a slot if `in_place`, persistent buffers never. `algorithm` is "greedy" or "optimal", which
    visits at most `work_limit` slots per memory space and is never worse. The result is verified. Raises UsageError.
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
    sizes: list[int] = []
    spaces: list[int] = []
    totals: dict[str, int] = {}
    bounds: dict[str, int] = {}
    optimal = True
    for position, space in enumerate(graph.spaces):
        here = np.flatnonzero(blocks.spaces == position)
        intervals = Intervals(blocks.first_steps[here], blocks.last_steps[here] - 1, blocks.sizes[here])
        found = search(intervals, work_limit if algorithm == "optimal" else 0)
        _verify(intervals, found.slot_of, space.name)
        largest: list[int] = slot_sizes(intervals, found.slot_of).tolist()
        slot_of_block[here] = found.slot_of + len(sizes)
        sizes += largest
        spaces += [position] * len(largest)
        totals[space.name] = sum(largest)
        bounds[space.name] = found.lower_bound_bytes
        optimal = optimal and found.optimal
    slot_of = np.full(graph.n_buffers, -1, np.int64)
    slot_of[ranges.buffers] = slot_of_block[blocks.of_residency]
    return Sharing(
        slot_of=slot_of,
        slot_sizes=np.asarray(sizes, np.int64),
        slot_spaces=np.asarray(spaces, np.int16),
        slot_bytes=totals,
        lower_bound_bytes=bounds,
        optimal=optimal,
    )


def _verify(intervals: Intervals, slot_of: Integers, space: str) -> None:
    order = np.lexsort((intervals.begins, slot_of))
    former, latter = order[:-1], order[1:]
    clash = (slot_of[former] == slot_of[latter]) & (intervals.ends[former] >= intervals.begins[latter])
    if clash.any():
        slot = int(slot_of[former[np.flatnonzero(clash)[0]]])
        raise VerificationError(f"slot {slot} of space {space!r} holds two buffers that are live at once; share again")


def slot_offsets(
    first: Integers, last: Integers, sizes: Integers, *, alignment: int = 1, work_limit: int = 0
) -> Integers:
    """Return an offset in bytes per buffer, with one part of the arena per slot; live ranges are half-open.

    Slots are greedy if `work_limit` is 0, else searched. Sizes are rounded up to the alignment. Feasible and
    deterministic, but without a bound. Raises UsageError for invalid arrays or numbers.
    """
    if not len(first) == len(last) == len(sizes):
        raise UsageError(f"{len(first)} starts, {len(last)} ends and {len(sizes)} sizes; give one of each per buffer")
    if alignment < 1 or work_limit < 0:
        raise UsageError(f"alignment {alignment} and work limit {work_limit}; give at least 1 and at least 0")
    wrong = np.flatnonzero((first >= last) | (sizes < 0))
    if len(wrong):
        at = int(wrong[0])
        raise UsageError(f"buffer {at}: live from {first[at]} to {last[at]} with {sizes[at]} bytes is no valid buffer")
    if sum(np.asarray(sizes).tolist()) + len(sizes) * alignment >= 2**63:
        raise UsageError("all sizes together exceed 2**63 - 1 bytes; give smaller sizes")
    rounded = -(-np.asarray(sizes, np.int64) // alignment) * alignment
    intervals = Intervals(np.asarray(first, np.int64), np.asarray(last, np.int64) - 1, rounded)
    slot_of = search(intervals, work_limit).slot_of if work_limit else greedy(intervals)
    sizes_of_slots = slot_sizes(intervals, slot_of)
    return (np.cumsum(sizes_of_slots) - sizes_of_slots)[slot_of]
