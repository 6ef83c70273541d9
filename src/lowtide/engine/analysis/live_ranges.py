"""The steps during which each copy of a buffer is resident."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.graph import Graph
from lowtide.engine.plan import HOME, Plan, StepKind


@dataclass(frozen=True, slots=True, eq=False)
class LiveRanges:
    """Residencies by first step, without persistent buffers. Steps are half-open."""

    buffers: NDArray[np.int32]
    spaces: NDArray[np.int16]
    first_steps: NDArray[np.int64]
    last_steps: NDArray[np.int64]
    continues: NDArray[np.int64]
    """The residency that hands over its storage, or -1."""

    def __len__(self) -> int:
        return len(self.buffers)


def live_ranges(graph: Graph, plan: Plan) -> LiveRanges:
    """Return the residencies of a valid plan. O(e log e).

    A residency ends at the step that frees it, at the run that hands over its storage, or at the number of steps. If a
    recomputed run allocates a resident buffer, the old one ends a step later.
    """
    # Every buffer b has one slot per space: b * n_spaces + space. A residency lasts until the next event of its slot.
    n_spaces, n_steps = len(graph.spaces), plan.n_steps
    homes = graph.buffer_spaces + np.arange(graph.n_buffers, dtype=np.int64) * n_spaces
    owners = plan.pairs.owners()
    read, written = homes[plan.pairs.values[::2]], homes[plan.pairs.values[1::2]]
    handed_at = owners[::2].astype(np.int64)
    begins, begin_steps = _begins(graph, plan, homes)
    n_inputs = int(graph.counted_at_start.sum())
    frees = np.flatnonzero(plan.kinds == StepKind.FREE)
    ends, end_steps = _slots(graph, plan, frees, homes)
    ends, end_steps = np.concatenate([ends, read]), np.concatenate([end_steps, handed_at])

    def moments(slots: NDArray[np.int64], steps: NDArray[np.int64], *, begin: bool) -> NDArray[np.int64]:
        return slots * (2 * n_steps + 2) + 2 * steps + 1 + begin

    begin_moments = moments(begins, begin_steps, begin=True)
    begin_moments[:n_inputs] -= 2
    events = np.concatenate([begin_moments, moments(ends, end_steps, begin=False)])
    order = np.argsort(events, kind="stable")
    slots, steps = np.concatenate([begins, ends])[order], np.concatenate([begin_steps, end_steps])[order]
    is_begin = order < len(begins)
    followed = np.roll(slots, -1) == slots
    followed[-1:] = False
    last_steps = np.empty(len(begins), np.int64)
    last_steps[order[is_begin]] = np.where(followed, np.roll(steps + is_begin, -1), n_steps)[is_begin]

    in_order = events[order]
    continues = np.full(len(begins), -1, np.int64)
    receivers = order[np.searchsorted(in_order, moments(written, handed_at, begin=True))]
    continues[receivers] = order[np.searchsorted(in_order, moments(read, handed_at, begin=False)) - 1]
    return LiveRanges(
        buffers=(begins // n_spaces).astype(np.int32),
        spaces=(begins % n_spaces).astype(np.int16),
        first_steps=begin_steps,
        last_steps=last_steps,
        continues=continues,
    )


def _begins(graph: Graph, plan: Plan, homes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    inputs = homes[graph.counted_at_start]
    runs = np.flatnonzero(plan.kinds == StepKind.RUN)
    made = graph.structure.allocates.take(plan.targets[runs])
    copies = np.flatnonzero((plan.kinds == StepKind.COPY_OUT) | (plan.kinds == StepKind.COPY_IN))
    copied, copied_at = _slots(graph, plan, copies, homes)
    steps = np.concatenate([runs[made.owners()], copied_at])
    by_step = np.argsort(steps, kind="stable")
    slots = np.concatenate([homes[made.values], copied])[by_step]
    return np.concatenate([inputs, slots]), np.concatenate([np.zeros(len(inputs), np.int64), steps[by_step]])


def _slots(
    graph: Graph, plan: Plan, steps: NDArray[np.int64], homes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    targets, spaces = plan.targets[steps], plan.spaces[steps]
    at_home = (spaces == HOME) | (plan.kinds[steps] == StepKind.COPY_IN)
    slots = np.where(at_home, homes[targets], targets.astype(np.int64) * len(graph.spaces) + spaces)
    counted = ~(graph.persistent[targets] & (slots == homes[targets]))
    return slots[counted], steps[counted]


@dataclass(frozen=True, slots=True, eq=False)
class StorageBlocks:
    """Residencies joined by in-place pairs, by first step. Steps are half-open."""

    spaces: NDArray[np.int64]
    first_steps: NDArray[np.int64]
    """-1 for blocks before the first step."""
    last_steps: NDArray[np.int64]
    sizes: NDArray[np.int64]
    of_residency: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.spaces)


def storage_blocks(graph: Graph, ranges: LiveRanges) -> StorageBlocks:
    """Join residencies that hand over their storage. O(residencies)."""
    homes = graph.buffer_spaces[ranges.buffers]
    at_start = (ranges.first_steps == 0) & (ranges.spaces == homes) & graph.exists_at_start[ranges.buffers]
    of_residency = np.empty(len(ranges), np.int64)
    starts = np.flatnonzero(ranges.continues < 0)
    of_residency[starts] = np.arange(len(starts))
    for row in np.flatnonzero(ranges.continues >= 0).tolist():
        of_residency[row] = of_residency[ranges.continues[row]]
    last_steps = ranges.last_steps[starts]
    np.maximum.at(last_steps, of_residency, ranges.last_steps)
    return StorageBlocks(
        spaces=ranges.spaces[starts].astype(np.int64),
        first_steps=(ranges.first_steps - at_start)[starts],
        last_steps=last_steps,
        sizes=graph.sizes[ranges.buffers[starts]],
        of_residency=of_residency,
    )
