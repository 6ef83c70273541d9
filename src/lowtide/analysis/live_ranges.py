"""Live ranges: from which step to which step every copy of every buffer is resident."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.graph import Graph, Lifetime
from lowtide.plan import HOME, Plan, StepKind


@dataclass(frozen=True, slots=True, eq=False)
class LiveRanges:
    """One row per residency, ordered by first step; persistent buffers are left out. Steps are half-open."""

    buffers: NDArray[np.int32]
    spaces: NDArray[np.int16]
    first_steps: NDArray[np.int64]
    last_steps: NDArray[np.int64]
    continues: NDArray[np.int64]
    """The residency whose storage this one takes over through an in-place pair, or -1."""

    def __len__(self) -> int:
        return len(self.buffers)


def live_ranges(graph: Graph, plan: Plan) -> LiveRanges:
    """Return every residency of a plan. O(steps + e); the plan is trusted, as in `simulate`.

    A residency starts at the step that allocates it (0 for inputs) and ends at the step that frees it, or at the run
    that hands its storage to another buffer, or at the number of steps. A rerun writes beside a copy that is still
    there, so that the replaced residency ends one step after the new one starts.
    """
    homes = graph.buffer_spaces.tolist()
    persistent = (graph.lifetimes == Lifetime.PERSISTENT).tolist()
    kinds: list[int] = plan.kinds.tolist()
    targets: list[int] = plan.targets.tolist()
    spaces: list[int] = plan.spaces.tolist()
    allocates = list(graph.structure.allocates)
    pairs = list(plan.pairs)
    rows: list[list[int]] = []  # buffer, space, first, last, continues
    open_rows: dict[tuple[int, int], int] = {}

    def start(buffer: int, space: int, step: int, continues: int = -1) -> None:
        open_rows[buffer, space] = len(rows)
        rows.append([buffer, space, step, plan.n_steps, continues])

    def end(buffer: int, space: int, step: int) -> int:
        row = open_rows.pop((buffer, space))
        rows[row][3] = step
        return row

    for buffer in np.flatnonzero((graph.lifetimes == Lifetime.INPUT) | (graph.lifetimes == Lifetime.DONATED)).tolist():
        start(buffer, homes[buffer], 0)
    for step, (kind, target, space) in enumerate(zip(kinds, targets, spaces, strict=True)):
        if kind == StepKind.RUN:
            taken = pairs[step]
            handed = {
                written: end(read, homes[read], step) for read, written in zip(taken[::2], taken[1::2], strict=True)
            }
            for buffer in allocates[target]:
                if (buffer, homes[buffer]) in open_rows:
                    end(buffer, homes[buffer], step + 1)
                start(buffer, homes[buffer], step, handed.get(buffer, -1))
            continue
        place = homes[target] if space == HOME or kind == StepKind.COPY_IN else space
        if persistent[target] and place == homes[target]:
            continue
        if kind == StepKind.FREE:
            end(target, place, step)
        else:
            start(target, place, step)
    table = np.asarray(rows, np.int64).reshape(-1, 5)
    return LiveRanges(
        buffers=table[:, 0].astype(np.int32),
        spaces=table[:, 1].astype(np.int16),
        first_steps=table[:, 2],
        last_steps=table[:, 3],
        continues=table[:, 4],
    )
