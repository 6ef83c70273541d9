"""Checks that every access, free and copy of a plan finds the version of the buffer it needs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import VerificationError
from lowtide.core.index_spaces import BufferId, OpId, SpaceId
from lowtide.engine.graph import Graph, Lifetime, Rows
from lowtide.engine.graph.execution import ABSENT
from lowtide.engine.plan.plan import HOME, Plan, StepKind

_Ints = NDArray[np.int64]
_READ, _WRITE, _COPY_SOURCE, _COPY_TARGET, _FREE, _HAND_OVER, _START = range(7)
"""Events, sorted within a step; `_START` has step -1."""
_BUFFERS_PER_PART = 2**15


class Violations:
    """The first violated rule of a plan, by step, then by rule."""

    def __init__(self, graph: Graph, plan: Plan) -> None:
        self.graph = graph
        self.plan = plan
        self._first: tuple[int, int, int] | None = None
        self._message = ""

    def add(self, steps: _Ints, wrong: NDArray[np.bool_], rule: int, describe: Callable[[int], str]) -> None:
        rows = np.flatnonzero(wrong)
        if not len(rows):
            return
        row = int(rows[np.argmin(steps[rows])])
        key = (int(steps[row]), rule, row)
        if self._first is None or key < self._first:
            self._first = key
            place = f"step {key[0]}" if key[0] < self.plan.n_steps else "after the last step"
            self._message = f"{place}: {describe(row)}"

    def raise_first(self) -> None:
        if self._first is not None:
            raise VerificationError(self._message)

    def op(self, op: OpId) -> str:
        return repr(self.graph.op_names[op])

    def buffer(self, buffer: BufferId) -> str:
        return repr(self.graph.buffer_names[buffer])

    def space(self, space: SpaceId) -> str:
        return f"memory space {self.graph.spaces[space].name!r}"


@dataclass(frozen=True, slots=True, eq=False)
class Accesses:
    ops: NDArray[np.int32]
    buffers: NDArray[np.int32]
    kinds: NDArray[np.int8]
    allocators: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class _SlotEvents:
    buffers: _Ints
    slots: _Ints
    """0 at home, 1 + s in space s."""
    steps: _Ints
    kinds: _Ints
    versions: _Ints
    """In program order; ABSENT for an allocation."""
    found: _Ints
    at_end: _Ints
    final: _Ints


def program_accesses(graph: Graph) -> Accesses:
    written = np.unique(np.concatenate([_op_buffer_keys(graph.mutates), _op_buffer_keys(graph.writes)]))
    ops, buffers = (written >> 32).astype(np.int32), (written & (2**32 - 1)).astype(np.int32)
    allocators = np.full(graph.n_buffers, graph.n_ops, np.int32)
    np.minimum.at(allocators, buffers, ops)
    allocators[graph.exists_at_start | (allocators == graph.n_ops)] = -1
    return Accesses(
        np.concatenate([graph.reads.owners(), ops]),
        np.concatenate([graph.reads.values, buffers]),
        np.repeat(np.array([_READ, _WRITE], np.int8), [len(graph.reads.values), len(written)]),
        allocators,
    )


def _op_buffer_keys(rows: Rows) -> _Ints:
    return rows.owners().astype(np.int64) << 32 | rows.values


def verify_contents(accesses: Accesses, runs: Rows, violations: Violations) -> tuple[_Ints, _Ints]:
    """Check every access, free and copy of a plan. O((steps + e) log e).

    Returns residencies, rows of (buffer, first step, last step, space), and allocations while an older copy is
    resident, rows of (step, buffer).
    """
    residencies, replaced = [np.zeros((0, 4), np.int64)], [np.zeros((0, 2), np.int64)]
    for first in range(0, violations.graph.n_buffers, _BUFFERS_PER_PART):
        events = _events(violations.graph, violations.plan, accesses, runs, first)
        _check(events, first, violations)
        allocates = (events.kinds == _WRITE) & (events.versions == ABSENT)
        residencies.append(_residencies(violations.graph, violations.plan, events, allocates))
        over = allocates & (events.found != ABSENT)
        replaced.append(np.column_stack([events.steps[over], events.buffers[over]]))
    return np.concatenate(residencies), np.concatenate(replaced)


def _events(graph: Graph, plan: Plan, accesses: Accesses, runs: Rows, first: BufferId) -> _SlotEvents:
    n_buffers = min(_BUFFERS_PER_PART, graph.n_buffers - first)
    at_start = np.where(graph.exists_at_start[first : first + n_buffers], 0, ABSENT)
    buffers, ops, kinds, versions, n_writes = _accesses_in_program_order(accesses, first, at_start)
    taken = runs.take(ops)
    access = taken.owners()

    def steps_of(mask: NDArray[np.bool_]) -> _Ints:
        steps = np.flatnonzero(mask)
        targets = plan.targets[steps]
        return steps[(targets >= first) & (targets < first + n_buffers)]

    frees = steps_of(plan.kinds == StepKind.FREE)
    copies = steps_of((plan.kinds == StepKind.COPY_OUT) | (plan.kinds == StepKind.COPY_IN))
    freed, copied = plan.targets[frees], plan.targets[copies]
    free_spaces = plan.spaces[frees].astype(np.int64)
    free_slots = np.where((free_spaces == HOME) | (free_spaces == graph.buffer_spaces[freed]), 0, free_spaces + 1)
    away, goes_out = plan.spaces[copies].astype(np.int64) + 1, plan.kinds[copies] == StepKind.COPY_OUT
    handed, handed_at = plan.pairs.values[::2], plan.pairs.owners()[::2]
    here = (handed >= first) & (handed < first + n_buffers)
    width = len(graph.spaces) + 1
    at_home = np.arange(n_buffers, dtype=np.int64) * width
    elsewhere = np.concatenate([(freed - first) * width + free_slots, (copied - first) * width + away])
    slots = np.concatenate([at_home, np.unique(elsewhere[elsewhere % width != 0])])

    parts = [  # slot, step, kind, version
        (buffers[access] * width, taken.values, kinds[access], versions[access]),
        (slots, -1, _START, np.where(slots % width == 0, at_start[slots // width], ABSENT)),
        (elsewhere[: len(frees)], frees, _FREE, ABSENT),
        ((handed[here] - first) * np.int64(width), handed_at[here], _HAND_OVER, ABSENT),
        ((copied - first) * width + np.where(goes_out, 0, away), copies, _COPY_SOURCE, ABSENT),
        ((copied - first) * width + np.where(goes_out, away, 0), copies, _COPY_TARGET, ABSENT),
    ]
    rows = [np.broadcast_arrays(*(np.asarray(column, np.int64) for column in part)) for part in parts]
    slot, step, kind, version = (np.concatenate(columns) for columns in zip(*rows, strict=True))
    order = np.argsort(slot << 35 | (step + 1) << 3 | kind)
    slot, step, kind, version = slot[order], step[order], kind[order], version[order]
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    sources, targets = np.split(position[len(order) - 2 * len(copies) :], 2)
    left, changed_by = _versions_left(kind, version, sources, targets)
    ends = np.searchsorted(slot, at_home, side="right") - 1
    return _SlotEvents(
        buffers=slot // width + first,
        slots=slot % width,
        steps=step,
        kinds=kind,
        versions=version,
        found=left[np.roll(changed_by, 1)],
        at_end=left[changed_by[ends]],
        final=at_start + n_writes,
    )


def _accesses_in_program_order(
    accesses: Accesses, first: BufferId, at_start: _Ints
) -> tuple[_Ints, NDArray[np.int32], NDArray[np.int8], _Ints, _Ints]:
    n_buffers = len(at_start)
    chosen = np.flatnonzero((accesses.buffers >= first) & (accesses.buffers < first + n_buffers))
    buffers, ops, kinds = (
        accesses.buffers[chosen].astype(np.int64) - first,
        accesses.ops[chosen],
        accesses.kinds[chosen],
    )
    order = np.argsort(buffers << 33 | ops.astype(np.int64) << 2 | kinds)
    buffers, ops, kinds = buffers[order], ops[order], kinds[order]
    is_write = kinds == _WRITE
    writes = np.cumsum(is_write)
    earlier = np.concatenate([[0], writes])[np.searchsorted(buffers, np.arange(n_buffers + 1))]
    versions = at_start[buffers] + writes - earlier[buffers] - is_write
    return buffers, ops, kinds, versions, np.diff(earlier)


def _versions_left(kinds: _Ints, versions: _Ints, sources: _Ints, targets: _Ints) -> tuple[_Ints, _Ints]:
    """Return the version left by each event, and the last changing event up to it."""
    rows = np.arange(len(kinds))
    changed_by = np.maximum.accumulate(np.where((kinds == _READ) | (kinds == _COPY_SOURCE), 0, rows))
    origins = rows.copy()
    origins[targets] = changed_by[sources]
    while not np.array_equal(further := origins[origins], origins):
        origins = further
    return (versions + (kinds == _WRITE))[origins], changed_by


def _check(events: _SlotEvents, first: BufferId, violations: Violations) -> None:
    graph, plan = violations.graph, violations.plan
    kinds, steps, found = events.kinds, events.steps, events.found
    is_absent = found == ABSENT
    touches = (kinds == _READ) | ((kinds == _WRITE) & (events.versions != ABSENT))
    violations.add(
        steps,
        touches & (found != events.versions),
        3,
        lambda row: (
            f"op {violations.op(int(plan.targets[steps[row]]))} touches buffer "
            f"{violations.buffer(events.buffers[row])}, which "
            f"{_difference(graph, events.buffers[row], events.versions[row], found[row])}"
        ),
    )
    complaint = partial(_complaint, events, violations)
    at_home = events.slots == 0
    freed = (kinds == _FREE) & is_absent
    violations.add(steps, freed & at_home, 0, complaint("is freed in {space}, but is not resident"))
    violations.add(steps, freed & ~at_home, 0, complaint("is freed in {space}, but has no copy there"))
    to_home = (kinds == _COPY_TARGET) & (events.slots == graph.buffer_spaces[events.buffers] + 1)
    violations.add(steps, to_home, 0, complaint("is copied out to its home space; name another space"))
    missing, present = (kinds == _COPY_SOURCE) & is_absent, (kinds == _COPY_TARGET) & ~is_absent
    violations.add(
        steps, missing & at_home, 1, complaint("is copied out, but is not resident; copy it before it is freed")
    )
    violations.add(steps, missing & ~at_home, 1, complaint("is copied in, but has no copy in {space}"))
    violations.add(steps, present & ~at_home, 2, complaint("has a copy in {space} already; free that copy first"))
    violations.add(steps, present & at_home, 2, complaint("is copied in, but is still resident; free it first"))
    lifetimes = graph.lifetimes[first : first + len(events.final)]
    stays = (lifetimes != Lifetime.DONATED) & (lifetimes != Lifetime.INTERMEDIATE)
    violations.add(
        np.full(len(stays), plan.n_steps, np.int64),
        stays & (events.at_end != events.final),
        1,
        lambda row: (
            f"{Lifetime(lifetimes[row]).name.lower()} buffer {violations.buffer(first + row)} "
            f"{_difference(graph, first + row, events.final[row], events.at_end[row])}"
        ),
    )


def _complaint(events: _SlotEvents, violations: Violations, text: str) -> Callable[[int], str]:
    def describe(row: int) -> str:
        buffer, slot = int(events.buffers[row]), int(events.slots[row])
        space = violations.space(slot - 1 if slot else int(violations.graph.buffer_spaces[buffer]))
        return f"buffer {violations.buffer(buffer)} {text.format(space=space)}"

    return describe


def _difference(graph: Graph, buffer: BufferId, wanted: int, found: int) -> str:
    if found == ABSENT:
        space = graph.spaces[int(graph.buffer_spaces[buffer])].name
        return f"is not resident in memory space {space!r}; write it, copy it in or free it later"
    wanted_as, found_as = _describe_version(graph, buffer, wanted), _describe_version(graph, buffer, found)
    return f"is needed {wanted_as}, but is resident {found_as}; keep the program's order of reads and writes"


def _describe_version(graph: Graph, buffer: BufferId, version: int) -> str:
    writers = np.unique(
        np.concatenate([rows.owners()[rows.values == buffer] for rows in (graph.mutates, graph.writes)])
    )
    write = version - int(graph.exists_at_start[buffer])
    return f"as op {graph.op_names[writers[write]]!r} wrote it" if write >= 0 else "as it was at the start"


def _residencies(graph: Graph, plan: Plan, events: _SlotEvents, allocates: NDArray[np.bool_]) -> _Ints:
    """Return residencies; replaced ones end one step after their replacement starts."""
    begins = allocates | (events.kinds == _COPY_TARGET) | ((events.kinds == _START) & (events.versions != ABSENT))
    changes = np.flatnonzero(begins | (events.kinds == _FREE) | (events.kinds == _HAND_OVER))
    slot = events.buffers * (len(graph.spaces) + 1) + events.slots
    followed = np.append(slot[changes[1:]] == slot[changes[:-1]], [False] * (len(changes) > 0))
    lasts = np.where(followed, np.roll((events.steps + allocates)[changes], -1), plan.n_steps)
    buffers, slots = events.buffers[changes], events.slots[changes]
    counted = begins[changes] & (graph.sizes[buffers] > 0) & ~(graph.persistent[buffers] & (slots == 0))
    spaces = np.where(slots == 0, graph.buffer_spaces[buffers], slots - 1)
    return np.column_stack([buffers, np.maximum(events.steps[changes], 0), lasts, spaces])[counted]
