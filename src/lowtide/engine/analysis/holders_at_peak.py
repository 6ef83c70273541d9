"""Tensors alive at the peak."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, SpaceId, StepIndex
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.analysis.live_ranges import LiveRanges
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.plan import Plan, Run, StepKind

_MOST_READERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A buffer alive at the peak of a memory space."""

    space: str
    name: str
    size_bytes: int
    lifetime: str
    op: str | None
    """The op that allocated it, None for inputs."""
    first_use: str | None
    """The op that makes it resident, None for inputs and copies."""
    last_use: str | None
    kept_alive_by: tuple[str, ...]
    """Up to three next readers and the number of others, then "output" or "the caller"; else the last op."""
    kind: str | None = None
    made_at: str | None = None
    """Place of this op in the user's program."""


def holders_at_peak(graph: Graph, plan: Plan) -> list[Holder]:
    """Return the tensors alive at the peak of every memory space, largest first. O(steps + e).

    Sizes add up to the peak. Transient bytes of the op at the peak are listed as "scratch of" the op.

    >>> import lowtide
    >>> builder = lowtide.GraphBuilder("one layer")
    >>> x = builder.add_buffer("x", 2048, lowtide.Lifetime.INPUT)
    >>> y = builder.add_buffer("y", 1024, lowtide.Lifetime.OUTPUT)
    >>> layer = builder.add_op("layer", "relu", reads=[x], writes=[y])
    >>> graph = builder.build()
    >>> for holder in lowtide.holders_at_peak(graph, lowtide.minimize(graph).plan):
    ...     print(holder.name, holder.size_bytes, holder.kept_alive_by)
    x 2048 ('layer', 'the caller')
    y 1024 ('output',)
    """
    footprint = simulate(graph, plan)
    ranges = footprint.ranges
    residents = [_resident_at(graph, ranges, space, step) for space, step in enumerate(footprint.peak_steps.values())]
    uses = _uses_by_buffer(graph, plan, ranges.buffers[np.concatenate(residents)])
    holders: list[Holder] = []
    for position, (space, step) in enumerate(footprint.peak_steps.items()):
        here: list[Holder] = []
        for row in residents[position].tolist():
            buffer = int(ranges.buffers[row])
            at_home = position == graph.buffer_spaces[buffer]
            first, last = int(ranges.first_steps[row]), int(ranges.last_steps[row])
            touched = [use for use in uses.get(buffer, []) if at_home and first <= use.step and use.until <= last]
            here.append(_holder(graph, plan, space, buffer, first, step, touched))
        unnamed = footprint.peak_bytes[space] - sum(holder.size_bytes for holder in here)
        if unnamed > 0:
            op = graph.op_names[int(plan.targets[step])]
            here.append(
                Holder(
                    space=space,
                    name=f"scratch of {op}",
                    size_bytes=unnamed,
                    lifetime="scratch",
                    op=None,
                    first_use=op,
                    last_use=op,
                    kept_alive_by=(op,),
                    made_at=graph.sources[int(plan.targets[step])],
                )
            )
        holders += sorted(here, key=lambda holder: -holder.size_bytes)
    return holders


@dataclass(frozen=True, slots=True)
class _Use:
    step: StepIndex
    reads: bool
    until: StepIndex
    """Earlier if the run hands over the storage."""


def _resident_at(graph: Graph, ranges: LiveRanges, space: SpaceId, step: StepIndex) -> NDArray[np.intp]:
    resident = (ranges.first_steps <= max(step, 0)) & (ranges.last_steps > step) & (ranges.spaces == space)
    if step < 0:
        resident &= ranges.first_steps == 0
        resident &= graph.counted_at_start[ranges.buffers]
    return np.flatnonzero(resident & (graph.sizes[ranges.buffers] > 0))


def _uses_by_buffer(graph: Graph, plan: Plan, wanted: NDArray[np.int32]) -> dict[BufferId, list[_Use]]:
    uses: dict[BufferId, list[_Use]] = {buffer: [] for buffer in wanted.tolist()}
    allocates, touches = list(graph.structure.allocates), list(graph.structure.touches)
    for step, row in enumerate(plan.steps()):
        if isinstance(row, Run):
            handed_on = [read for read, _ in row.pairs]
            for buffer in allocates[row.op]:
                if buffer in uses:
                    uses[buffer].append(_Use(step, False, step + 1))
            for buffer in touches[row.op]:
                if buffer in uses:
                    uses[buffer].append(_Use(step, True, step if buffer in handed_on else step + 1))
    return uses


def _holder(
    graph: Graph, plan: Plan, space: str, buffer: BufferId, first: StepIndex, peak: StepIndex, uses: Sequence[_Use]
) -> Holder:
    lifetime = Lifetime(int(graph.lifetimes[buffer]))
    producer = int(graph.structure.producers[buffer])

    def name_at(step: StepIndex) -> str:
        return graph.op_names[int(plan.targets[step])]

    later = [name_at(use.step) for use in uses if use.reads and use.step >= peak]
    kept = later[:_MOST_READERS] + ([f"{len(later) - _MOST_READERS} more"] if len(later) > _MOST_READERS else [])
    if lifetime == Lifetime.OUTPUT:
        kept.append("output")
    elif lifetime == Lifetime.INPUT:
        kept.append("the caller")
    elif not kept and uses:
        kept.append(name_at(uses[-1].step))
    from_the_start = lifetime.exists_at_start and first == 0
    return Holder(
        space=space,
        name=graph.buffer_names[buffer],
        size_bytes=int(graph.sizes[buffer]),
        lifetime=lifetime.name.lower(),
        op=graph.op_names[producer] if producer >= 0 else None,
        first_use=None if from_the_start or plan.kinds[first] != StepKind.RUN else name_at(first),
        last_use=name_at(uses[-1].step) if uses else None,
        kept_alive_by=tuple(kept),
        kind=graph.op_kinds[producer] if producer >= 0 else None,
        made_at=graph.sources[producer] if producer >= 0 else None,
    )
