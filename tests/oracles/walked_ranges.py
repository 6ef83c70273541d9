"""The oracle of live ranges: one walk over the steps of a plan, which keeps what is resident."""

import numpy as np

from lowtide.engine.analysis.live_ranges import LiveRanges
from lowtide.engine.graph import Graph
from lowtide.engine.plan import HOME, Plan, StepKind


def walked_ranges(graph: Graph, plan: Plan) -> LiveRanges:
    """Return every residency of a plan, which is walked step by step.

    A residency starts at the step that allocates it (0 for inputs) and ends at the step that frees it, or at the run
    that hands its storage to another buffer, or at the number of steps. A rerun writes beside a copy that is still
    there, so that the replaced residency ends one step after the new one starts.
    """
    n_spaces, n_steps = len(graph.spaces), plan.n_steps
    # Every buffer b has a slot for its copy in each space, b * n_spaces + space; these are the slots at home.
    homes: list[int] = (graph.buffer_spaces + np.arange(graph.n_buffers, dtype=np.int64) * n_spaces).tolist()
    is_persistent: list[bool] = graph.persistent.tolist()
    allocates, pairs = list(graph.structure.allocates), list(plan.pairs)
    inputs = np.flatnonzero(graph.counted_at_start).tolist()
    slots: list[int] = [homes[buffer] for buffer in inputs]
    firsts, lasts, continues = [0] * len(slots), [n_steps] * len(slots), [-1] * len(slots)
    open_rows = dict(zip(slots, range(len(slots)), strict=True))
    kinds: list[int] = plan.kinds.tolist()
    targets: list[int] = plan.targets.tolist()
    spaces: list[int] = plan.spaces.tolist()
    for step, (kind, target, space) in enumerate(zip(kinds, targets, spaces, strict=True)):
        if kind == StepKind.RUN:
            handed: dict[int, int] = {}
            taken = pairs[step]
            for read, written in zip(taken[::2], taken[1::2], strict=True):
                handed[written] = row = open_rows.pop(homes[read])
                lasts[row] = step
            begun = [(homes[buffer], handed.get(buffer, -1)) for buffer in allocates[target]]
            for slot, _ in begun:
                if slot in open_rows:
                    lasts[open_rows[slot]] = step + 1
        else:
            is_home = space == HOME or kind == StepKind.COPY_IN
            slot = homes[target] if is_home else target * n_spaces + space
            if is_persistent[target] and slot == homes[target]:
                continue
            if kind == StepKind.FREE:
                lasts[open_rows.pop(slot)] = step
                continue
            begun = [(slot, -1)]
        for slot, row in begun:
            open_rows[slot] = len(slots)
            slots.append(slot)
            firsts.append(step)
            lasts.append(n_steps)
            continues.append(row)
    where = np.asarray(slots, np.int64)
    return LiveRanges(
        buffers=(where // n_spaces).astype(np.int32),
        spaces=(where % n_spaces).astype(np.int16),
        first_steps=np.asarray(firsts, np.int64),
        last_steps=np.asarray(lasts, np.int64),
        continues=np.asarray(continues, np.int64),
    )
