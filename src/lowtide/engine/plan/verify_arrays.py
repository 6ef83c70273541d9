"""The first stage of verification: whether a plan's arrays are steps over this graph at all."""

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import VerificationError
from lowtide.engine.graph import Graph
from lowtide.engine.plan.plan import HOME, Plan
from lowtide.engine.plan.steps import StepKind


def verify_arrays(graph: Graph, plan: Plan) -> None:
    """Check that all arrays agree in length and every id lies in range; raises VerificationError. O(steps)."""
    lengths = {len(plan.kinds), len(plan.targets), len(plan.spaces), len(plan.pairs)}
    if len(lengths) != 1:
        raise VerificationError(f"the plan's arrays have lengths {sorted(lengths)}; every step needs one entry in each")
    kinds, targets, spaces = plan.kinds, plan.targets, plan.spaces
    runs = kinds == StepKind.RUN
    copies = (kinds == StepKind.COPY_OUT) | (kinds == StepKind.COPY_IN)
    _reject(kinds > max(StepKind), "has an unknown kind; a step is a run, a free, a copy out or a copy in")
    _reject(runs & ((targets < 0) | (targets >= graph.n_ops)), f"runs an op that is none of the {graph.n_ops}")
    _reject(
        ~runs & ((targets < 0) | (targets >= graph.n_buffers)), f"names a buffer that is none of the {graph.n_buffers}"
    )
    _reject(
        (spaces < HOME) | (spaces >= len(graph.spaces)), f"names a memory space that is none of the {len(graph.spaces)}"
    )
    _reject(runs & (spaces != HOME), "runs an op in a memory space; only frees and copies name one")
    _reject(copies & (spaces == HOME), "copies without naming the other memory space")
    counts = np.diff(plan.pairs.offsets)
    ends = plan.pairs.offsets[[0, -1]]
    if (counts < 0).any() or ends[0] != 0 or ends[1] != len(plan.pairs.values):
        raise VerificationError("the plan's in-place pairs are no rows; build them with `Rows.from_lists`")
    _reject((counts > 0) & ~runs, "takes in-place pairs, but runs no op")
    _reject(counts % 2 == 1, "has half an in-place pair; give a read and a written buffer each")
    wrong = (plan.pairs.values < 0) | (plan.pairs.values >= graph.n_buffers)
    if wrong.any():
        step = int(plan.pairs.owners()[wrong.argmax()])
        raise VerificationError(f"step {step} takes an in-place pair with a buffer that is none of {graph.n_buffers}")


def _reject(wrong: NDArray[np.bool_], what: str) -> None:
    if wrong.any():
        raise VerificationError(f"step {int(wrong.argmax())} {what}")
