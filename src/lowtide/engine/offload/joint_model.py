"""The mixed-integer program that chooses offload and recomputation together, and its bound on the slow-down.

To the rows of `recompute.place_model` it adds a column per counted place and buffer prefetched after this place, and
one per stage for stalled seconds. Every real schedule satisfies these rows:

- A buffer prefetched after a place, but not kept there, was copied out before. All copies of buffers made after some op
  and copied out before a place share one stream between the two.
- A prefetched buffer is copied back between the place and the base op that needs it.
- The seconds between two places are those of base ops, of ops recomputed there and of stalls.

Memory between places and of copies under way is ignored, so this is a relaxation.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import RecomputeEffort
from lowtide.core.index_spaces import BufferId, OpId, Place
from lowtide.engine.offload.host_space import Link
from lowtide.engine.offload.offload_search import OffloadSearch
from lowtide.engine.offload.offloadable import offloadable_buffers
from lowtide.engine.plan import StepKind
from lowtide.engine.recompute import Drops, solver
from lowtide.engine.recompute.certified_bound import certify
from lowtide.engine.recompute.place_model import ModelBuilder, PlaceModel
from lowtide.engine.recompute.program import OrderedProgram
from lowtide.engine.recompute.solver import MixedIntegerProgram
from lowtide.engine.search.proof_of_cost import Name

_MAX_WINDOWS = 16
_ROUNDING = 1e-9
"""Taken off the bound for the rounding of seconds, as a share of all seconds."""
_FIRST_SLACK = 0.02
_MAX_SLACKS = 3
_FREE_SHARE_PER_SLACK = 0.25
_FIRST_PART, _LATER_PART = 1.5, 0.25
_PROMISE_RATIO = 1.005


class JointModel:
    """The program of one base order and host."""

    def __init__(self, program: OrderedProgram, link: Link, seconds: NDArray[np.float64]) -> None:
        self.program, self.link = program, link
        self.capacity = program.problem.graph.spaces[link.host].capacity_bytes
        self.model = PlaceModel(program)
        self.offloadable: list[bool] = offloadable_buffers(program).tolist()
        self.starts: list[float] = np.concatenate([[0.0], np.cumsum(seconds[program.order])]).tolist()
        """Start of the op at every place without other delays, then the end."""
        uses: list[list[Place]] = [[] for _ in self.offloadable]
        for place, op in enumerate(self.model.order):
            for buffer in self.model.touches[op]:
                uses[buffer].append(place)
        for buffer in self.model.outputs:
            uses[buffer].append(len(self.model.order))
        self.uses = uses


class JointModelBuilder(ModelBuilder):
    """Adds streams and host memory to the program. With `share=1.0`, its optimum bounds every plan's slow-down."""

    def __init__(self, joint: JointModel, places: Sequence[Place], budget: int, share: float) -> None:
        super().__init__(joint.model, places, budget, {})
        self.joint = joint
        self.per_byte_out = 1 / (share * joint.link.out_bytes_per_s)
        self.per_byte_back = 1 / (share * joint.link.back_bytes_per_s)
        self.prefetches: list[dict[BufferId, int]] = []

    def chosen(self, solution: NDArray[np.float64]) -> NDArray[np.bool_]:
        offloaded = np.zeros(len(self.joint.offloadable), np.bool_)
        for columns in self.prefetches:
            for buffer, column in columns.items():
                offloaded[buffer] |= solution[column] > 0.5
        return offloaded

    def add_columns(self, number: int, wanted: tuple[list[OpId], list[BufferId]]) -> None:
        super().add_columns(number, wanted)
        self.prefetches.append(
            {b: self.column(0.0) for b in wanted[1] if self.joint.offloadable[b] and b in self.kept[number]}
        )

    def other_sources(self, number: int, buffer: BufferId) -> Sequence[int]:
        column = self.prefetches[number].get(buffer)
        return () if column is None else (column,)

    def finish(self) -> None:
        sizes = self.model.sizes
        buffers = sorted({buffer for columns in self.prefetches for buffer in columns})
        capacity = self.joint.capacity
        if capacity is not None:
            for number, columns in enumerate(self.prefetches):
                on_host = [(column, float(sizes[buffer])) for buffer, column in columns.items()]
                self.rows.add(("host", number), on_host, -np.inf, float(capacity), unit=float(max(1, capacity)))
        per_byte = self.per_byte_out + self.per_byte_back
        self.max_seconds = per_byte * len(self.places) * sum(sizes[buffer] for buffer in buffers)
        if self.max_seconds > 0:
            self.stalls = [self._continuous(self.max_seconds) for _ in range(len(self.places) + 1)]
            self._add_copies_out(buffers)
            self._add_prefetches()

    def _continuous(self, cost: float) -> int:
        column = self.column(cost)
        self.continuous.append(column)
        return column

    def _add_copies_out(self, buffers: Sequence[BufferId]) -> None:
        first = self.model.first
        copied_out: list[dict[BufferId, int]] = []
        for number, place in enumerate(self.places):
            later = {buffer for columns in self.prefetches[number:] for buffer in columns}
            copied_out.append({b: self._continuous(0.0) for b in buffers if b in later and first[b] < place})
        for number, columns in enumerate(self.prefetches):
            for buffer, column in columns.items():
                copied = [
                    (copied_out[before][buffer], 1.0) for before in range(number + 1) if buffer in copied_out[before]
                ]
                self.rows.add(("copied", number, buffer), [*copied, (column, -1.0)], 0.0, np.inf)
        for number, place in enumerate(self.places):
            copied = [(first[b], b, column) for before in copied_out[: number + 1] for b, column in before.items()]
            for earliest in _windows([(made, self.model.sizes[b]) for made, b, _ in copied], latest_first=True):
                copies = [(column, b) for made, b, column in copied if made >= earliest]
                self._add_stream_row(("out until", earliest), copies, self.per_byte_out, earliest + 1, place)

    def _add_prefetches(self) -> None:
        uses = self.joint.uses
        for number, place in enumerate(self.places):
            back: list[tuple[Place, BufferId, int]] = []
            for later in range(number, len(self.places)):
                for buffer, column in self.prefetches[later].items():
                    use = bisect_right(uses[buffer], self.places[later])
                    if use < len(uses[buffer]):
                        back.append((uses[buffer][use], buffer, column))
            for latest in _windows([(use, self.model.sizes[b]) for use, b, _ in back], latest_first=False):
                copies = [(column, b) for use, b, column in back if use <= latest]
                self._add_stream_row(("back until", latest), copies, self.per_byte_back, place + 1, latest)

    def _add_stream_row(
        self, name: Name, copies: Iterable[tuple[int, BufferId]], per_byte: float, start: Place, end: Place
    ) -> None:
        starts = self.joint.starts
        unit = max(starts[-1], self.max_seconds)
        terms = [(column, per_byte * self.model.sizes[buffer]) for column, buffer in copies]
        for stage in range(bisect_left(self.places, start), bisect_left(self.places, end) + 1):
            terms.append((self.stalls[stage], -self.max_seconds))
            if stage:
                terms += [(column, -self.cost[column]) for column in self.rerun[stage - 1].values()]
        self.rows.add(name, terms, -np.inf, max(0.0, starts[end] - starts[start]), unit=unit)


def _windows(copies: Sequence[tuple[Place, int]], *, latest_first: bool) -> list[Place]:
    total = sum(size for _, size in copies)
    places: list[Place] = []
    passed = 0
    ordered = sorted(copies, reverse=latest_first)
    for position, (place, size) in enumerate(ordered):
        passed += size
        is_last = position + 1 == len(ordered)
        if is_last or (ordered[position + 1][0] != place and passed * _MAX_WINDOWS >= total * (len(places) + 1)):
            places.append(place)
    return places


@dataclass(frozen=True, slots=True, kw_only=True)
class JointResult:
    """Bounds on the slow-down of any plan, in seconds."""

    bound: float = 0.0
    claimed_bound: float = 0.0
    seconds: tuple[float, ...] = ()
    work: int = 0
    places: tuple[Place, ...] = ()


def solve_jointly(search: OffloadSearch, effort: RecomputeEffort, *, rerun: bool) -> JointResult:
    """Offer plans that the joint model chooses, and return its bound.

    The first choice gives the bound. Later ones leave a share of streams and budget free, since copies that hide in the
    model may stall in a schedule.
    """
    program = search.program
    baseline = program.execute(Drops())
    peak = int(baseline.stages[int(baseline.live.argmax())])
    runs = search.best.plan.kinds == StepKind.RUN
    seconds = np.zeros(program.problem.graph.n_ops)
    seconds[search.best.plan.targets[runs]] = search.best.timeline.durations[runs]
    model = JointModel(program, search.link, seconds)
    first = _offer(search, model, peak, 0.0, None, effort, rerun=rerun)
    work, start, slack = first.work, first.solution, _FIRST_SLACK
    too_little, enough = 0.0, math.inf
    for _ in range(_MAX_SLACKS):
        if search.is_within(first.bound, effort.relative_gap):
            break
        choice = _offer(search, model, peak, slack, start, effort, rerun=rerun)
        work, start = work + choice.work, choice.solution
        if not choice.is_new:
            break
        too_little, enough = (too_little, slack) if choice.meets_promise else (slack, enough)
        slack = min((too_little + enough) / 2, 2 * slack)
    goal = min(first.bound, search.best.timeline.extra_seconds if search.best.over_bytes == 0 else math.inf)
    certified = certify(first.milp, goal, max_work=int(effort.certify_share * first.work))
    return JointResult(
        bound=max(0.0, certified.at_least - _ROUNDING * model.starts[-1]),
        claimed_bound=goal,
        seconds=tuple(seconds.tolist()),
        work=work + certified.work,
        places=(peak,),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    milp: MixedIntegerProgram
    bound: float
    solution: NDArray[np.float64] | None
    work: int
    is_new: bool
    meets_promise: bool


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
    budget = search.budget - int(_FREE_SHARE_PER_SLACK * slack * search.budget)
    builder = JointModelBuilder(model, [place], budget, 1 - slack)
    built = builder.build()
    left = int(effort.solver_work * (_FIRST_PART if slack == 0 else _LATER_PART))
    solved = solver.solve(built.milp, start, relative_gap=effort.relative_gap / 2, max_work=left)
    is_new = meets_promise = search.costs_at_most(solved.claimed_bound)
    if solved.solution is not None and not meets_promise:
        offloaded = builder.chosen(solved.solution)
        is_new = search.try_choice(offloaded, rerun=rerun, exact=True)
        if rerun:
            search.try_choice(offloaded, rerun=False, exact=True)
        meets_promise = search.costs_at_most(_PROMISE_RATIO * float(built.milp.cost @ solved.solution))
    return _Choice(
        milp=built.milp,
        bound=solved.claimed_bound,
        solution=solved.solution,
        work=solved.work,
        is_new=is_new,
        meets_promise=meets_promise,
    )
