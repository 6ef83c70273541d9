"""What is offloaded and what runs again, chosen together by the solver, and a bound on the slow-down of any plan."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import RecomputeEffort
from lowtide.core.index_spaces import Place
from lowtide.engine.offload.joint_model import JointModel
from lowtide.engine.offload.offload_search import OffloadSearch
from lowtide.engine.plan import StepKind
from lowtide.engine.recompute import Drops, solver

_FIRST_SLACK = 0.02
_MOST_SLACKS = 3
_FREE_PER_SLACK = 0.25
"""How much of the budget stays free, per part of the streams that does."""
_FIRST_PART, _LATER_PART = 1.5, 0.25
"""Of the solver's work: for the choice with full streams, which gives the bound, and for every other."""
_AS_PROMISED = 1.005
"""A plan that loses no more than this multiple of what its choice promised leaves enough free, maybe too much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """What the solver proved."""

    bound: float = 0.0
    """The least slow-down of any plan, in seconds."""
    work: int = 0
    places: tuple[Place, ...] = ()
    """Where memory was counted."""


def solve_jointly(search: OffloadSearch, effort: RecomputeEffort, *, rerun: bool) -> Joint:
    """Offer plans that the joint model chooses, and return its bound.

    The model counts memory only where the untouched program needs most, so a copy that hides in the model may have to
    wait in a real schedule. The first choice fills the streams, and gives the bound. Every later one leaves a part of
    the streams and of the budget free; that part shrinks if the plan before kept what the model promised, else it
    grows. Work is limited and counted.
    """
    program = search.program
    untouched = program.execute(Drops())
    peak = int(untouched.stages[int(untouched.live.argmax())])
    runs = search.best.plan.kinds == StepKind.RUN
    seconds = np.zeros(program.problem.graph.n_ops)
    seconds[search.best.plan.targets[runs]] = search.best.timeline.durations[runs]
    model = JointModel(program, search.link, seconds)
    first = _offer(search, model, peak, 0.0, None, effort, rerun=rerun)
    work, start, slack = first.work, first.solution, _FIRST_SLACK
    too_little, enough = 0.0, math.inf
    for _ in range(_MOST_SLACKS):
        if search.is_within(first.bound, effort.relative_gap):
            break
        choice = _offer(search, model, peak, slack, start, effort, rerun=rerun)
        work, start = work + choice.work, choice.solution
        if not choice.is_new:
            break
        too_little, enough = (too_little, slack) if choice.is_kept else (slack, enough)
        slack = min((too_little + enough) / 2, 2 * slack)
    return Joint(bound=first.bound, work=work, places=(peak,))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """What the model gave for one slack."""

    bound: float
    solution: NDArray[np.float64] | None
    work: int
    is_new: bool
    """Whether it has not been tried before."""
    is_kept: bool
    """Whether the best plan loses no more than the solution promised."""


def _offer(
    search: OffloadSearch,
    model: JointModel,
    place: Place,
    slack: float,
    start: NDArray[np.float64] | None,
    effort: RecomputeEffort,
    *,
    rerun: bool,
) -> _Choice:
    """Solve the model with a part of the streams left free, and offer its choice."""
    budget = search.budget - int(_FREE_PER_SLACK * slack * search.budget)
    built, builder = model.choose([place], budget, 1 - slack)
    left = int(effort.solver_work * (_FIRST_PART if slack == 0 else _LATER_PART))
    solved = solver.solve(built.milp, start, relative_gap=effort.relative_gap / 2, max_work=left)
    is_new = is_kept = search.loses_no_more_than(solved.lower_bound)
    if solved.solution is not None and not is_kept:
        offloaded = builder.chosen(solved.solution)
        is_new = search.try_choice(offloaded, rerun=rerun, exact=True)
        if rerun:
            search.try_choice(offloaded, rerun=False, exact=True)
        is_kept = search.loses_no_more_than(_AS_PROMISED * float(built.milp.cost @ solved.solution))
    return _Choice(bound=solved.lower_bound, solution=solved.solution, work=solved.work, is_new=is_new, is_kept=is_kept)
