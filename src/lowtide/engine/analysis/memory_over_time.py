"""Memory over the runs of a plan."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import OpId, SpaceId
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.plan import Plan, StepKind
from lowtide.engine.plan.addresses import Addresses


class Role(IntEnum):
    """The role of a buffer, from the bottom of a chart up."""

    INPUT = 0
    OUTPUT = 1
    ACTIVATION = 2
    """Made in the forward pass and read later."""
    UPDATE = 3
    """Read by updates, such as gradients."""
    TEMPORARY = 4

    @property
    def caption(self) -> str:
        return ("inputs", "outputs", "activations saved for backward", "gradients and updates", "temporaries")[self]


PARTS = (*(role.caption for role in Role), "scratch", "padding", "fragmentation")
"""From the bottom up. The last two need addresses."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MemoryOverTime:
    """Bytes in one memory space. A column shows the largest step among some runs."""

    space: str
    n_runs: int
    runs_per_column: int
    steps: NDArray[np.int64]
    """-1 before the first step."""
    parts: NDArray[np.int64]
    """Shape (len(PARTS), columns). All but the last two add up to the live bytes."""

    @property
    def live(self) -> NDArray[np.int64]:
        return self.parts[:-2].sum(axis=0)


def roles_of(graph: Graph) -> NDArray[np.uint8]:
    """Return the `Role` of every buffer. O(n + e).

    An update mutates or writes a persistent buffer, or reads one and writes nothing. The forward pass ends when all
    weights, read before any update, have been read.
    """
    roles = np.full(graph.n_buffers, Role.TEMPORARY, np.uint8)
    updates = _updates(graph)
    turn = _end_of_forward(graph, updates)
    readers = graph.reads.owners()
    if turn is not None:
        read_later = np.zeros(graph.n_buffers, np.bool_)
        read_later[graph.reads.values[readers > turn]] = True
        roles[read_later & (graph.structure.producers <= turn)] = Role.ACTIVATION
    roles[graph.reads.values[updates[readers]]] = Role.UPDATE
    roles[graph.exists_at_start] = Role.INPUT
    roles[graph.lifetimes == Lifetime.OUTPUT] = Role.OUTPUT
    return roles


def _updates(graph: Graph) -> NDArray[np.bool_]:
    persistent = graph.persistent
    updates = np.zeros(graph.n_ops, np.bool_)
    for rows in (graph.mutates, graph.writes):
        updates[rows.owners()[persistent[rows.values]]] = True
    silent = (np.diff(graph.writes.offsets) == 0) & (np.diff(graph.mutates.offsets) == 0)
    readers = graph.reads.owners()
    updates[readers[persistent[graph.reads.values] & silent[readers]]] = True
    return updates


def _end_of_forward(graph: Graph, updates: NDArray[np.bool_]) -> OpId | None:
    first_read = np.full(graph.n_buffers, graph.n_ops)
    first_update = first_read.copy()
    readers = graph.reads.owners()
    reads = ~updates[readers]
    np.minimum.at(first_read, graph.reads.values[reads], readers[reads])
    for rows in (graph.mutates, graph.writes, graph.reads):
        owners = rows.owners()
        np.minimum.at(first_update, rows.values[updates[owners]], owners[updates[owners]])
    weights = graph.persistent & (first_read < first_update) & (first_update < graph.n_ops)
    return int(first_read[weights].max()) if weights.any() else None


def runs_per_column(n_runs: int, most_columns: int) -> int:
    return max(1, -(-n_runs // max(1, most_columns)))


def memory_over_time(graph: Graph, plan: Plan, space: SpaceId, grain: int) -> MemoryOverTime:
    """Return a space's memory over a valid plan, with a column for every `grain` runs.

    O(steps + e) plus the columns that each residency spans.
    """
    footprint = simulate(graph, plan)
    live = footprint.live[:, space]
    ranges = footprint.ranges
    is_run = plan.kinds == StepKind.RUN
    n_runs = int(is_run.sum())
    # Row r of `live` is step r - 1. Other steps count as the run before them, or as the first run.
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
    at_start = graph.counted_at_start[buffers] & (graph.buffer_spaces[buffers] == space) & (first_steps <= 0)
    return np.where(at_start, -1, first_steps)


def _beyond(
    graph: Graph, plan: Plan, space: SpaceId, steps: NDArray[np.int64], live: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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
