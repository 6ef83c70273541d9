"""The residencies of a plan as the verifier finds them, by a walk over its steps."""

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, SpaceId, StepIndex
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.plan.addresses import BEFORE_THE_FIRST_STEP
from lowtide.engine.plan.plan import HOME, Plan
from lowtide.engine.plan.steps import StepKind
from lowtide.engine.plan.versions import Versions


def residencies_of(graph: Graph, plan: Plan, versions: Versions) -> NDArray[np.int64]:
    """Return every residency with a size that the peak counts; the plan has been found executable. O(steps + e).

    A table of shape (n, 5): the columns are those of `Addresses`, with the row that a residency takes its storage over
    from, or -1, in place of its offset. This is the verifier's own walk: what plans are made with is not asked.
    """
    sizes, homes, lifetimes = graph.sizes.tolist(), graph.buffer_spaces.tolist(), graph.lifetimes.tolist()
    buffers, firsts, lasts, spaces, continues = list[int](), list[int](), list[int](), list[int](), list[int]()
    present = [[-1] * graph.n_buffers for _ in graph.spaces]  # per space and buffer: the row of what is there

    def start(buffer: BufferId, space: SpaceId, step: StepIndex, taken_over: int = -1) -> None:
        if sizes[buffer] == 0 or (lifetimes[buffer] == Lifetime.PERSISTENT and space == homes[buffer]):
            return
        present[space][buffer] = len(buffers)
        buffers.append(buffer)
        firsts.append(step)
        lasts.append(plan.n_steps)
        spaces.append(space)
        continues.append(taken_over)

    def end(buffer: BufferId, space: SpaceId, step: StepIndex) -> int:
        row = present[space][buffer]
        if row >= 0:
            lasts[row] = step
            present[space][buffer] = -1
        return row

    for buffer, lifetime in enumerate(lifetimes):
        if lifetime in (Lifetime.INPUT, Lifetime.DONATED):
            start(buffer, homes[buffer], 0)
    for step, (kind, target, space, pairs) in enumerate(
        zip(plan.kinds.tolist(), plan.targets.tolist(), plan.spaces.tolist(), plan.pairs, strict=True)
    ):
        if kind == StepKind.RUN:
            taken = zip(pairs[::2], pairs[1::2], strict=True)
            handed = {written: end(read, homes[read], step) for read, written in taken} if pairs else {}
            for buffer in versions.allocated_by(target):
                end(buffer, homes[buffer], step + 1)
                start(buffer, homes[buffer], step, handed.get(buffer, -1))
        elif kind == StepKind.FREE:
            end(target, homes[target] if space == HOME else space, step)
        else:
            start(target, space if kind == StepKind.COPY_OUT else homes[target], step)
    table = np.array([buffers, firsts, lasts, spaces, continues], np.int64).T
    table[table[:, 1] == table[:, 2], 1] = BEFORE_THE_FIRST_STEP
    return table
