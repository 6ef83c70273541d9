"""What travels and what runs again, chosen together by the solver, and the bound on the slow-down of any plan."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.offload.joint_model import JointModel
from lowtide.offload.offload_search import OffloadSearch
from lowtide.plan import StepKind
from lowtide.recompute import Cuts, solver
from lowtide.recompute.effort import Effort

_SHARES = (1.0, 0.92, 0.82, 0.65)
"""Parts of the lanes that choices may fill: what hides in the program over a few places may wait in a real schedule."""
_MOST_PLACES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """What the solver proved."""

    bound: float = 0.0
    """No plan is slower by less."""
    work: int = 0
    places: tuple[int, ...] = ()


def solve_jointly(search: OffloadSearch, places: Sequence[int], effort: Effort, *, rerun: bool) -> Joint:
    """Offer what the program with lanes chooses, for full lanes first and then less and less, and return its bound.

    `places` are those that recomputation alone had to count; of more than a few, the place of the peak and the first
    and last stay. Work is limited and counted.
    """
    program = search.program
    untouched = program.execute(Cuts())
    peak = int(untouched.stages[int(untouched.live.argmax())])
    counted = sorted({peak, *places})
    if len(counted) > _MOST_PLACES:
        counted = sorted({peak, counted[0], counted[-1]})
    runs = search.best.plan.kinds == StepKind.RUN
    seconds = np.zeros(program.problem.graph.n_ops)
    seconds[search.best.plan.targets[runs]] = search.best.timeline.durations[runs]
    model = JointModel(program, search.link, seconds)
    bound, work = 0.0, 0
    for share in _SHARES:
        built, lanes = model.choose(counted, search.budget, share)
        is_first = share == _SHARES[0]
        gap = effort.relative_gap / 2 if is_first else 2 * effort.relative_gap
        left = effort.solver_work // (3 if is_first else 10)
        solved = solver.solve(built.milp, None, relative_gap=gap, max_work=left)
        work += solved.work
        if is_first:
            bound = solved.lower_bound
        if solved.solution is not None:
            search.try_choice(lanes.chosen(solved.solution), rerun=rerun, exact=True)
        if search.is_within(bound, effort.relative_gap):
            break
    return Joint(bound=bound, work=work, places=tuple(counted))
