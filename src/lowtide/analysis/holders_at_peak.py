"""Who holds memory at the peak, and who keeps it alive."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.analysis.footprint import simulate
from lowtide.analysis.live_ranges import live_ranges
from lowtide.graph import Graph, Lifetime
from lowtide.plan import Plan, StepKind

_MOST_READERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One buffer that is resident when a memory space peaks."""

    space: str
    name: str
    size_bytes: int
    lifetime: str
    op: str | None
    """The op that allocated it; None for inputs and for an op's own scratch."""
    first_use: str | None
    """The op that runs when it becomes resident; None when it is there from the start."""
    last_use: str | None
    """The last op that touches it; None when it lives to the end without one."""
    kept_alive_by: tuple[str, ...]
    """The next ops that still need it, up to three, or why it stays: "output", "the caller"."""


def holders_at_peak(graph: Graph, plan: Plan) -> list[Holder]:
    """List what is resident at the peak of every memory space, largest first.

    Sizes add up to the peak: transient bytes of the op at the peak are listed as "scratch of" that op. Persistent
    buffers are left out. O(steps + e).
    """
    footprint = simulate(graph, plan)
    ranges = live_ranges(graph, plan)
    runs = plan.kinds == StepKind.RUN
    uses = _uses_by_buffer(graph, plan, np.flatnonzero(runs))
    holders: list[Holder] = []
    for position, (space, step) in enumerate(footprint.peak_steps.items()):
        resident = (ranges.first_steps <= max(step, 0)) & (ranges.last_steps > step) & (ranges.spaces == position)
        if step < 0:
            resident &= ranges.first_steps == 0
            resident &= np.isin(graph.lifetimes[ranges.buffers], (Lifetime.INPUT, Lifetime.DONATED))
        here: list[Holder] = []
        for row in np.flatnonzero(resident & (graph.sizes[ranges.buffers] > 0)).tolist():
            buffer, first = int(ranges.buffers[row]), int(ranges.first_steps[row])
            here.append(_holder(graph, plan, space, buffer, first, step, uses.get(buffer, [])))
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
                )
            )
        holders += sorted(here, key=lambda holder: -holder.size_bytes)
    return holders


def _uses_by_buffer(
    graph: Graph, plan: Plan, run_steps: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> dict[int, list[int]]:
    """Per buffer, the steps whose runs allocate or touch it, ascending."""
    uses: dict[int, list[int]] = {}
    allocates, touches = list(graph.structure.allocates), list(graph.structure.touches)
    for step, op in zip(run_steps.tolist(), plan.targets[run_steps].tolist(), strict=True):
        for buffer in (*allocates[op], *touches[op]):
            uses.setdefault(buffer, []).append(step)
    return uses


def _holder(graph: Graph, plan: Plan, space: str, buffer: int, first: int, peak: int, uses: Sequence[int]) -> Holder:
    lifetime = Lifetime(int(graph.lifetimes[buffer]))
    producer = int(graph.structure.producers[buffer])

    def name_at(step: int) -> str:
        return graph.op_names[int(plan.targets[step])]

    later = [name_at(step) for step in uses if step >= max(peak, 0)]
    kept = later[:_MOST_READERS] + ([f"{len(later) - _MOST_READERS} more"] if len(later) > _MOST_READERS else [])
    if lifetime == Lifetime.OUTPUT:
        kept.append("output")
    elif lifetime == Lifetime.INPUT:
        kept.append("the caller")
    return Holder(
        space=space,
        name=graph.buffer_names[buffer],
        size_bytes=int(graph.sizes[buffer]),
        lifetime=lifetime.name.lower(),
        op=graph.op_names[producer] if producer >= 0 else None,
        first_use=None if lifetime.exists_at_start and first == 0 else name_at(first),
        last_use=name_at(uses[-1]) if uses else None,
        kept_alive_by=tuple(kept),
    )
