"""The memory of a plan over its runs, by what it is there for, in no more columns than a picture has room for."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import SpaceId
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.analysis.roles import Role, roles_of
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, StepKind
from lowtide.engine.plan.addresses import Addresses

PARTS = (*(role.caption for role in Role), "scratch", "padding", "fragmentation")
"""What memory is made up of, from the bottom up; the last two are there where a plan has addresses."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MemoryOverTime:
    """Bytes in one memory space. A column stands for `runs_per_column` runs, and shows the instant with most bytes."""

    space: str
    n_runs: int
    runs_per_column: int
    steps: NDArray[np.int64]
    """Per column, the step of the plan that is shown; -1 stands for before the first one."""
    parts: NDArray[np.int64]
    """Bytes, shape (len(PARTS), columns). Without the last two they add up to the live bytes."""

    @property
    def live(self) -> NDArray[np.int64]:
        """Live bytes of every column: what the peak counts."""
        return self.parts[:-2].sum(axis=0)


def runs_per_column(n_runs: int, most_columns: int) -> int:
    """Return how many runs share a column so that so many columns do."""
    return max(1, -(-n_runs // max(1, most_columns)))


def memory_over_time(graph: Graph, plan: Plan, space: SpaceId, grain: int) -> MemoryOverTime:
    """Return what a memory space holds over a plan, a column for every `grain` runs.

    O(steps + e), and the columns that each residency lasts.
    The columns' largest live bytes are the peak of `simulate`. The plan is trusted: check it with `verify`.
    """
    footprint = simulate(graph, plan)
    live = footprint.live[:, space]
    ranges = footprint.ranges
    is_run = plan.kinds == StepKind.RUN
    n_runs = int(is_run.sum())
    # row r of `live` is step r - 1; steps before a run's successor are the run's, those before the first run its own
    run_of = np.concatenate([[0], np.maximum(np.cumsum(is_run) - 1, 0)])
    starts = np.flatnonzero(np.diff(run_of // grain, prepend=-1))
    lengths = np.diff(np.append(starts, len(live)))
    most = np.maximum.reduceat(live, starts)
    at_most = np.flatnonzero(live == np.repeat(most, lengths))
    steps = at_most[np.searchsorted(at_most, starts)] - 1

    mine = ranges.spaces == space
    buffers = ranges.buffers[mine]
    begins = _begins(graph, space, buffers, ranges.first_steps[mine])
    first, last = np.searchsorted(steps, begins), np.searchsorted(steps, ranges.last_steps[mine])
    sizes = graph.sizes[buffers]
    change = np.zeros((len(Role), len(steps) + 1), np.int64)
    roles = roles_of(graph)[buffers]
    np.add.at(change, (roles, first), sizes)
    np.subtract.at(change, (roles, last), sizes)
    held = np.cumsum(change[:, :-1], axis=1)
    shown = live[steps + 1]
    padding, fragmentation = _beyond(graph, plan, space, steps, shown)
    return MemoryOverTime(
        space=graph.spaces[space].name,
        n_runs=n_runs,
        runs_per_column=grain,
        steps=steps,
        parts=np.vstack([held, shown - held.sum(axis=0), padding, fragmentation]),
    )


def _begins(
    graph: Graph, space: SpaceId, buffers: NDArray[np.int32], first_steps: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the step at which residencies in a space begin: -1 for what is there before the first one."""
    at_start = graph.counted_at_start[buffers] & (graph.buffer_spaces[buffers] == space) & (first_steps <= 0)
    return np.where(at_start, -1, first_steps)


def _beyond(
    graph: Graph, plan: Plan, space: SpaceId, steps: NDArray[np.int64], live: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what addresses add at some steps: bytes up to the next aligned address, and holes below the highest byte.

    Scratch has no address of its own: it fills holes first. All is 0 where the plan has no addresses.
    """
    nothing = np.zeros(len(steps), np.int64)
    if not len(plan.addresses):
        return nothing, nothing
    table = Addresses.of(plan.addresses).table
    table = table[table[:, 3] == space]
    sizes = graph.sizes[table[:, 0]]
    begins = _begins(graph, space, table[:, 0].astype(np.int32), table[:, 1])
    first, last = np.searchsorted(steps, begins), np.searchsorted(steps, table[:, 2])
    alignment = graph.spaces[space].alignment
    change = np.zeros(len(steps) + 1, np.int64)
    padded = -(-sizes // alignment) * alignment - sizes
    np.add.at(change, first, padded)
    np.subtract.at(change, last, padded)
    padding = np.cumsum(change[:-1])
    tops = table[:, 4] + sizes
    top = np.zeros(len(steps), np.int64)
    by_top = np.argsort(tops, kind="stable")
    for begin, end, height in zip(first[by_top].tolist(), last[by_top].tolist(), tops[by_top].tolist(), strict=True):
        top[begin:end] = height
    holes = np.maximum(top - live, 0)
    padding = np.minimum(padding, holes)
    return padding, holes - padding
