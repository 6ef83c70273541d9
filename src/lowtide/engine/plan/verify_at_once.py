"""The rules of execution for plans that run every op once and copy nothing, on arrays instead of step by step.

Such a plan gives every buffer one residency at most, so that each rule says something about all steps at once. Plans of
millions of steps are of this kind. What breaks a rule here is left to the walk over steps, which says which step it is.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId
from lowtide.engine.graph import Graph, Lifetime, Rows
from lowtide.engine.plan.addresses import BEFORE_THE_FIRST_STEP
from lowtide.engine.plan.plan import HOME, Plan
from lowtide.engine.plan.steps import StepKind
from lowtide.engine.plan.verify_execution import Peak
from lowtide.engine.plan.versions import ABSENT

_Ids = NDArray[np.int32]
_Steps = NDArray[np.int64]
_READ, _WRITE, _GONE = range(3)
"""What happens to a buffer at a step, in this order."""
_BUFFERS_AT_ONCE = 2**17
"""Bounds the memory for sorting what happens to them."""


@dataclass(frozen=True, slots=True, eq=False)
class _Played:
    """A plan that runs every op once and copies nothing, by ops and buffers."""

    step_of: _Steps
    """Per op, the step that runs it."""
    gone: _Steps
    """Per buffer, the step that frees it or hands its storage over, the number of steps where none does."""
    n_steps: int
    pairs: tuple[_Ids, _Ids, _Ids]
    """The op, the read and the written buffer of every in-place pair that is taken."""


@dataclass(frozen=True, slots=True, eq=False)
class _Accesses:
    """Every access of the program: its op, its buffer, and `_READ` or `_WRITE`; an op writes a buffer once."""

    ops: _Ids
    buffers: _Ids
    kinds: NDArray[np.int8]
    allocators: _Ids
    """Per buffer, the op that writes it first, or -1 where it is there at the start or nothing writes it."""


def execution_at_once(
    graph: Graph, plan: Plan, transient: NDArray[np.int64]
) -> tuple[list[Peak], NDArray[np.int64]] | None:
    """Return what `execution_by_steps` returns, where a plan breaks no rule; rows of the table may stand elsewhere.

    None where it breaks one, runs an op twice, or copies. O((steps + e) log e).
    """
    played = _played(graph, plan)
    if played is None or not _order_is_kept(graph, played):
        return None
    accesses = _accesses(graph)
    if not _pairs_are_allowed(graph, played, accesses.allocators):
        return None
    for first in range(0, graph.n_buffers, _BUFFERS_AT_ONCE):
        if not _contents_are_right(graph, played, accesses, first):
            return None
    return _peaks(graph, played, accesses.allocators, transient), _residencies(graph, played, accesses.allocators)


def _played(graph: Graph, plan: Plan) -> _Played | None:
    runs, frees = np.flatnonzero(plan.kinds == StepKind.RUN), np.flatnonzero(plan.kinds == StepKind.FREE)
    freed, where = plan.targets[frees], plan.spaces[frees]
    away = (where != HOME) & (where != graph.buffer_spaces[freed])
    if len(runs) != graph.n_ops or len(runs) + len(frees) != plan.n_steps or away.any():
        return None
    step_of = np.full(graph.n_ops, -1, np.int64)
    step_of[plan.targets[runs]] = runs
    flat, takers = plan.pairs.values, plan.targets[plan.pairs.owners()[::2]]
    pairs = (takers, flat[::2], flat[1::2])
    goes = np.concatenate([freed, pairs[1]])
    gone = np.full(graph.n_buffers, plan.n_steps, np.int64)
    gone[goes] = np.concatenate([frees, step_of[takers]])
    if (step_of < 0).any() or len(np.unique(goes)) < len(goes):
        return None  # an op that runs twice leaves no step for another; what goes twice breaks a rule
    return _Played(step_of, gone, plan.n_steps, pairs)


def _order_is_kept(graph: Graph, played: _Played) -> bool:
    """Tell whether control predecessors run before, and ordered ops in program order."""
    before, after = played.step_of[graph.after.values], played.step_of[graph.after.owners()]
    return bool((before < after).all() and (np.diff(played.step_of[graph.ordered]) > 0).all())


def _pairs_are_allowed(graph: Graph, played: _Played, allocators: _Ids) -> bool:
    """Tell whether every pair is offered by its op, and of two buffers of which one can hand its storage over."""
    ops, reads, writes = played.pairs
    if not len(ops):
        return True
    offered = graph.in_place
    keys = np.concatenate([offered.values[::2], reads]) * np.int64(graph.n_buffers)
    keys += np.concatenate([offered.values[1::2], writes])
    _, numbers = np.unique(keys, return_inverse=True)
    keys = numbers + np.concatenate([offered.owners()[::2], ops]) * np.int64(len(numbers))
    lifetimes = graph.lifetimes[reads]
    return bool(
        np.isin(keys[-len(ops) :], keys[: -len(ops)]).all()
        and len(np.unique(writes)) == len(writes)
        and ((lifetimes == Lifetime.DONATED) | (lifetimes == Lifetime.INTERMEDIATE)).all()
        and (graph.sizes[reads] == graph.sizes[writes]).all()
        and (graph.buffer_spaces[reads] == graph.buffer_spaces[writes]).all()
        and (allocators[writes] == ops).all()
    )


def _accesses(graph: Graph) -> _Accesses:
    written = np.unique(np.concatenate([_keys(graph.mutates), _keys(graph.writes)]))
    ops, buffers = (written >> 32).astype(np.int32), (written & (2**32 - 1)).astype(np.int32)
    allocators = np.full(graph.n_buffers, graph.n_ops, np.int32)
    np.minimum.at(allocators, buffers, ops)
    allocators[graph.exists_at_start | (allocators == graph.n_ops)] = -1
    return _Accesses(
        np.concatenate([graph.reads.owners(), ops]),
        np.concatenate([graph.reads.values, buffers]),
        np.repeat(np.array([_READ, _WRITE], np.int8), [len(graph.reads.values), len(written)]),
        allocators,
    )


def _keys(rows: Rows) -> NDArray[np.int64]:
    return rows.owners().astype(np.int64) << 32 | rows.values


def _contents_are_right(graph: Graph, played: _Played, accesses: _Accesses, first: BufferId) -> bool:
    """Tell whether what happens to some buffers, from `first` on, finds the contents it needs.

    Contents have versions as in `Versions`. What happens to a buffer leaves a version behind that follows from the
    program; what happens next in the plan must need that one.
    """
    last = min(first + _BUFFERS_AT_ONCE, graph.n_buffers)
    chosen = np.flatnonzero((accesses.buffers >= first) & (accesses.buffers < last))
    buffers, ops, kinds = accesses.buffers[chosen] - first, accesses.ops[chosen], accesses.kinds[chosen]
    at_start = np.where(graph.exists_at_start[first:last], 0, ABSENT)

    by_program = np.argsort(_sorting_key(buffers, ops, kinds))
    buffers, ops, kinds = buffers[by_program], ops[by_program], kinds[by_program]
    writes = np.cumsum(kinds == _WRITE)
    earlier = np.concatenate([[0], writes])[np.searchsorted(buffers, np.arange(last - first + 1))]
    left = at_start[buffers] + writes - earlier[buffers]
    seen = left - (kinds == _WRITE)

    gone = np.flatnonzero(played.gone[first:last] < played.n_steps)
    buffers = np.concatenate([buffers, gone])
    steps = np.concatenate([played.step_of[ops], played.gone[first:last][gone]])
    kinds = np.concatenate([kinds, np.full(len(gone), _GONE, np.int8)])
    by_plan = np.argsort(_sorting_key(buffers, steps, kinds))
    buffers, kinds = buffers[by_plan], kinds[by_plan]
    left = np.concatenate([left, np.full(len(gone), ABSENT)])[by_plan]
    seen = np.concatenate([seen, np.full(len(gone), ABSENT)])[by_plan]
    found = np.concatenate([[ABSENT], left])[:-1]
    ends = np.searchsorted(buffers, np.arange(last - first + 1))
    begins = np.flatnonzero(np.diff(ends))
    found[ends[begins]] = at_start[begins]

    at_end = at_start.copy()
    at_end[begins] = left[ends[begins + 1] - 1]
    wanted = at_start + np.diff(earlier)
    stays = (graph.lifetimes[first:last] != Lifetime.DONATED) & (graph.lifetimes[first:last] != Lifetime.INTERMEDIATE)
    is_gone = kinds == _GONE
    return bool(
        (found[is_gone] != ABSENT).all()
        and (found[~is_gone] == seen[~is_gone]).all()
        and (at_end[stays] == wanted[stays]).all()
    )


def _sorting_key(
    buffers: NDArray[np.integer[Any]], times: NDArray[np.integer[Any]], kinds: NDArray[np.int8]
) -> NDArray[np.int64]:
    """Return numbers that sort by buffer, then time, then kind; there are few buffers at once, and 31 bits of time."""
    return buffers.astype(np.int64) << 33 | times.astype(np.int64) << 2 | kinds


def _peaks(graph: Graph, played: _Played, allocators: _Ids, transient: NDArray[np.int64]) -> list[Peak]:
    own = np.flatnonzero(allocators >= 0)
    goes = np.flatnonzero((played.gone < played.n_steps) & ~graph.persistent)
    peaks: list[Peak] = []
    for space in range(len(graph.spaces)):
        here = np.where(graph.buffer_spaces == space, graph.sizes, 0)
        live = np.zeros(played.n_steps + 1, np.int64)
        live[0] = at_start = int(here[graph.counted_at_start].sum())
        np.add.at(live, played.step_of[allocators[own]] + 1, here[own])
        np.subtract.at(live, played.gone[goes] + 1, here[goes])
        np.cumsum(live, out=live)
        live[played.step_of + 1] += transient[:, space]
        step = int(live[1:].argmax()) if played.n_steps else -1
        reached = int(live[step + 1])
        peaks.append(Peak(reached, step) if reached > at_start else Peak(at_start, -1))
    return peaks


def _residencies(graph: Graph, played: _Played, allocators: _Ids) -> NDArray[np.int64]:
    """Return the table of `residencies_of`: a buffer has one residency, if any."""
    buffers = np.flatnonzero((graph.counted_at_start | (allocators >= 0)) & (graph.sizes > 0))
    table = np.empty((len(buffers), 5), np.int64)
    table[:, 0] = buffers
    table[:, 1] = 0
    own = allocators[buffers] >= 0
    table[own, 1] = played.step_of[allocators[buffers[own]]]
    table[:, 2] = played.gone[buffers]
    table[table[:, 1] == table[:, 2], 1] = BEFORE_THE_FIRST_STEP
    table[:, 3] = graph.buffer_spaces[buffers]
    row_of = np.full(graph.n_buffers, -1, np.int64)
    row_of[buffers] = np.arange(len(buffers))
    table[:, 4] = -1
    _, reads, writes = played.pairs
    taken_over = row_of[writes] >= 0
    table[row_of[writes[taken_over]], 4] = row_of[reads[taken_over]]
    return table
