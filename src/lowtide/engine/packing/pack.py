"""Offsets for buffers: a named rule, or the default that combines them all."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from lowtide.core.effort import DEFAULT_EFFORT, PACKING_EFFORTS, EffortName, PackingEffort, check_effort
from lowtide.core.errors import UsageError, unknown
from lowtide.core.progress import Report, silent
from lowtide.engine.packing.buffers import Buffers
from lowtide.engine.packing.conflict import Conflict, find_conflict
from lowtide.engine.packing.contradictions import refuse_contradictions
from lowtide.engine.packing.items import Ints, Layout, items_of
from lowtide.engine.packing.keep_hints import keep_hints
from lowtide.engine.packing.packed import Packed
from lowtide.engine.packing.rules import RULES
from lowtide.engine.packing.search import PackSearch
from lowtide.engine.packing.validate import validate

if TYPE_CHECKING:
    from lowtide.engine.plan import Status

_T = TypeVar("_T")
_SETTLED = ("optimal", "infeasible")
"""What is known then is known, whatever was interrupted."""
_CONFLICT_SHARE = 10
"""One in so many parts of the work of exact search goes to finding which buffers a capacity is too small for."""


def pack(
    buffers: Buffers,
    *,
    capacity: int | None = None,
    method: str | None = None,
    effort: EffortName = DEFAULT_EFFORT,
    progress: Report | None = None,
) -> Packed:
    """Find offsets with the smallest arena, or with one of at most `capacity` bytes.

    `method` names one of the published rules to use instead of the search: "best-fit-by-size", "best-fit-by-birth",
    "best-fit-by-breadth", "first-fit-by-size", "first-fit-by-birth". `effort` is how much work the search may do; it is
    counted, not timed, so that every machine finds the same. Without a `method`, many buffers stay where their hints
    ask, within `capacity` if given and else within the smallest arena found (see `keep_hints`). `validate` checks the
    result. Where a capacity is neither met nor proven too small, the search goes on as if none were given, with as much
    work again, so that the arena is never above the one found without it. A packing is returned in every case: after
    Ctrl-C or the end of the work it is the best one so far, and its status says so.

    Raises UsageError for an unknown method or effort or a negative capacity, MalformedInputError for buffers that
    contradict one another.

    >>> import lowtide
    >>> packed = lowtide.pack(lowtide.Buffers(first=[0, 3, 0], last=[3, 9, 9], sizes=[400, 400, 800]))
    >>> packed.offsets.tolist(), packed.arena_bytes, packed.status
    ([800, 800, 0], 1200, 'optimal')
    """
    if method is not None and method not in RULES:
        raise UsageError(unknown("packing method", method, RULES))
    check_effort(effort)
    if capacity is not None and capacity < 0:
        raise UsageError(f"capacity {capacity} is negative; give bytes >= 0")
    layout, late = _to_the_end(lambda: _layout(buffers))
    search, later = _to_the_end(lambda: PackSearch(layout.items, capacity, PACKING_EFFORTS[effort], progress or silent))
    late |= later
    conflict = Conflict((), minimal=False)
    try:
        if late:
            raise KeyboardInterrupt
        if method is None:
            search.run()
            if search.may_still_fit:
                free = PackSearch(layout.items, None, PACKING_EFFORTS[effort], progress or silent)
                free.run()
                search.take_from(free)
            _keep_hints(buffers, layout, search, capacity, PACKING_EFFORTS[effort])
        else:
            search.offer(RULES[method](layout.items), method)
        if capacity is not None and search.bound.size_bytes > capacity:
            conflict = Conflict(search.bound.holders, minimal=False)
            conflict = _conflict(search, capacity, PACKING_EFFORTS[effort])
    except KeyboardInterrupt:
        late = True
        search.offer_anything()
    result, later = _to_the_end(lambda: _result(buffers, layout, search, capacity, conflict))
    return replace(result, status="interrupted") if (late or later) and result.status not in _SETTLED else result


def _to_the_end(step: Callable[[], _T]) -> tuple[_T, bool]:
    """Return what a step that no packing can do without returns, and whether Ctrl-C came meanwhile."""
    try:
        return step(), False
    except KeyboardInterrupt:
        return step(), True


def _layout(buffers: Buffers) -> Layout:
    layout = items_of(buffers)
    refuse_contradictions(buffers, layout)
    return layout


def _keep_hints(
    buffers: Buffers, layout: Layout, search: PackSearch, capacity: int | None, effort: PackingEffort
) -> None:
    if buffers.hints is None or not search.method:
        return
    limit = search.height if capacity is None else max(search.height, capacity)
    offsets = keep_hints(buffers, layout, search.offsets, limit, effort)
    if offsets is not search.offsets:
        search.replace(offsets, "kept-hints")


def _hints_kept(buffers: Buffers, offsets: Ints) -> int:
    return 0 if buffers.hints is None else int((buffers.hints == offsets).sum())


def _conflict(search: PackSearch, capacity: int, effort: PackingEffort) -> Conflict:
    suspects = np.asarray(search.bound.holders, np.intp)
    work = effort.exact_work // _CONFLICT_SHARE
    return find_conflict(search.items, suspects, capacity, work, effort.exact_items)


def _result(buffers: Buffers, layout: Layout, search: PackSearch, capacity: int | None, conflict: Conflict) -> Packed:
    offsets = layout.offsets_of(buffers, search.offsets)
    validate(buffers, offsets)
    arena, bound = search.items.height(search.offsets), search.bound.size_bytes
    status: Status = "optimal" if arena == bound else "feasible"
    if capacity is not None and arena > capacity:
        status = "infeasible" if bound > capacity else "stopped_by_work"
    return Packed(
        offsets=offsets,
        arena_bytes=arena,
        lower_bound_bytes=bound,
        status=status,
        bound_holders=layout.buffers_of(search.bound.holders),
        conflict=layout.buffers_of(conflict.items),
        conflict_minimal=conflict.minimal,
        hints_kept=_hints_kept(buffers, offsets),
        method=search.method,
        work=search.work,
    )
