"""From a plan of a program with loads to one with copies: each trip leaves once and comes back where it is needed."""

import numpy as np

from lowtide.offload.shadow import Shadow
from lowtide.plan import CopyIn, CopyOut, Free, Plan, Run, Step


def steps_of(shadow: Shadow, plan: Plan, host: int) -> list[Step]:
    """Return the steps that a plan of a shadow stands for, copies right after production and right before use.

    What is never loaded again is not copied at all. O(steps).
    """
    n_buffers = shadow.program.problem.graph.n_buffers - len(shadow.copies)
    runs = np.bincount(plan.order(), minlength=len(shadow.ops))
    travels = set(shadow.loaded[(shadow.loaded >= 0) & (runs > 1)].tolist())
    ops, loaded, copies = shadow.ops.tolist(), shadow.loaded.tolist(), shadow.copies.tolist()
    out: set[int] = set()
    steps: list[Step] = []
    for step in plan.steps():
        match step:
            case Run(op, pairs):
                buffer = loaded[op]
                if buffer < 0:
                    steps.append(Run(ops[op], pairs))
                elif buffer in out:
                    steps.append(CopyIn(buffer, host))
                elif buffer in travels:
                    steps.append(CopyOut(buffer, host))
                    out.add(buffer)
            case Free(buffer):
                if buffer < n_buffers:
                    steps.append(step)
                elif copies[buffer - n_buffers] in travels:
                    steps.append(Free(copies[buffer - n_buffers], host))
            case _:
                steps.append(step)
    return steps
