"""Pack buffers by a rule or by search."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from lowtide.core.effort import DEFAULT_EFFORT, PACKING_EFFORTS, EffortName, PackingEffort, check_effort
from lowtide.core.errors import MalformedInputError, UsageError, unknown
from lowtide.core.index_spaces import SpaceId
from lowtide.core.progress import Report, silent
from lowtide.engine.packing.buffers import FREE, Buffers, Ints
from lowtide.engine.packing.conflict import Conflict, find_conflict
from lowtide.engine.packing.items import Layout, items_of
from lowtide.engine.packing.keep_hints import keep_hints
from lowtide.engine.packing.rules import RULES
from lowtide.engine.packing.search import PackSearch
from lowtide.engine.packing.validate import broken_rule, validate
from lowtide.engine.plan import Status

_T = TypeVar("_T")
_SETTLED = ("optimal", "infeasible")
_CONFLICT_SHARE = 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """An offset for every buffer, and a lower bound of the arena."""

    offsets: Ints
    """In bytes; 0 for buffers never alive or empty, unless fixed."""
    arena_bytes: int
    lower_bound_bytes: int
    status: Status
    """optimal: the arena equals the bound. feasible: it fits the capacity, if any. infeasible: proven that no packing
    fits the capacity. stopped_by_work: neither a fitting packing nor a proof was found. interrupted: Ctrl-C ended the
    search. The offsets are always a valid packing, possibly above the capacity."""
    bound_holders: tuple[int, ...]
    """Buffers that together set the bound."""
    conflict: tuple[int, ...]
    """If infeasible, few buffers that together exceed the capacity."""
    conflict_minimal: bool = False
    """Whether every buffer, or group of tied buffers, in the conflict is necessary."""
    hints_kept: int = 0
    method: str
    """Name of the method that found the packing."""
    work: int
    """Items examined by all methods."""

    @property
    def optimal(self) -> bool:
        """Whether no packing has a smaller arena."""
        return self.arena_bytes == self.lower_bound_bytes

    @property
    def gap(self) -> float:
        """Distance of the arena from the bound, as a fraction."""
        return self.arena_bytes / self.lower_bound_bytes - 1.0 if self.lower_bound_bytes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """A buffer placed outside its first choice of space."""

    buffer: int
    wanted: SpaceId
    space: SpaceId
    too_large: bool
    """Whether the buffer exceeds its first choice; otherwise that was full."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedSpaces:
    """A space and an offset for every buffer."""

    spaces: Ints
    """Positions in the list of spaces."""
    offsets: Ints
    packed: Mapping[str, Packed]
    """The packing of every space, by name, with ids within that space."""
    spilled: tuple[Spill, ...]
    status: Status
    """optimal: every buffer is in its first choice. feasible: every space fits. infeasible: proven impossible.
    stopped_by_work: some space is too full, without a proof."""
    spilled_bytes: int


def pack(
    buffers: Buffers,
    *,
    capacity: int | None = None,
    method: str | None = None,
    effort: EffortName = DEFAULT_EFFORT,
    progress: Report | None = None,
) -> Packed:
    """Return offsets with the smallest arena found, or with an arena of at most `capacity` bytes.

    `method` names a published rule to use instead of the search: "best-fit-by-size", "best-fit-by-birth",
    "best-fit-by-breadth", "first-fit-by-size" or "first-fit-by-birth". `effort` limits the counted work of the search,
    so that results are the same on every machine. Without `method`, many buffers stay at their hints (see
    `keep_hints`). If a capacity is neither met nor proven too small, the search is repeated without it. After Ctrl-C or
    at the end of the work, the best packing found is returned with its status.

    Raises UsageError for an unknown method or effort or a negative capacity, and MalformedInputError for contradictory
    buffers.

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
    layout, interrupted = _run_despite_interrupt(lambda: _layout(buffers))
    search, again = _run_despite_interrupt(
        lambda: PackSearch(layout.items, capacity, PACKING_EFFORTS[effort], progress or silent)
    )
    interrupted |= again
    conflict = Conflict((), minimal=False)
    try:
        if interrupted:
            raise KeyboardInterrupt
        if method is None:
            search.run()
            if search.may_still_fit:
                free = PackSearch(layout.items, None, PACKING_EFFORTS[effort], progress or silent)
                free.run()
                search.adopt(free)
            _apply_hints(buffers, layout, search, capacity, PACKING_EFFORTS[effort])
        else:
            search.offer(RULES[method](layout.items), method)
        if capacity is not None and search.bound.size_bytes > capacity:
            conflict = Conflict(search.bound.holders, minimal=False)
            suspects, limits = np.asarray(search.bound.holders, np.intp), PACKING_EFFORTS[effort]
            work = limits.exact_work // _CONFLICT_SHARE
            conflict = find_conflict(search.items, suspects, capacity, work, limits.exact_items)
    except KeyboardInterrupt:
        interrupted = True
        search.offer_quick_packing()
    result, again = _run_despite_interrupt(lambda: _result(buffers, layout, search, capacity, conflict))
    return replace(result, status="interrupted") if (interrupted or again) and result.status not in _SETTLED else result


def _run_despite_interrupt(step: Callable[[], _T]) -> tuple[_T, bool]:
    try:
        return step(), False
    except KeyboardInterrupt:
        return step(), True


def _layout(buffers: Buffers) -> Layout:
    layout = items_of(buffers)
    refuse_contradictions(buffers, layout)
    return layout


def _apply_hints(
    buffers: Buffers, layout: Layout, search: PackSearch, capacity: int | None, effort: PackingEffort
) -> None:
    if buffers.hints is None or not search.method:
        return
    limit = search.height if capacity is None else max(search.height, capacity)
    offsets = keep_hints(buffers, layout, search.offsets, limit, effort)
    if offsets is not search.offsets:
        search.replace(offsets, "kept-hints")


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
        hints_kept=0 if buffers.hints is None else int((buffers.hints == offsets).sum()),
        method=search.method,
        work=search.work,
    )


def refuse_contradictions(buffers: Buffers, layout: Layout) -> None:
    """Raise MalformedInputError for grouped buffers that must be apart, and for clashing fixed offsets."""
    _refuse_apart_in_group(buffers, layout)
    if buffers.fixed is None:
        return
    placed = np.flatnonzero(layout.item_of >= 0)
    ids = placed[layout.items.fixed[layout.item_of[placed]] != FREE]
    offsets = layout.items.fixed[layout.item_of[ids]] + layout.low[ids]
    broken = broken_rule(buffers.take(ids), offsets)
    if broken is not None:
        raise MalformedInputError(f"fixed offsets clash: {broken}; move or free one")


def _refuse_apart_in_group(buffers: Buffers, layout: Layout) -> None:
    if buffers.apart is None:
        return
    one, two = buffers.apart.T
    low, high = layout.low, layout.low + buffers.sizes
    tied = (one != two) & (layout.item_of[one] >= 0) & (layout.item_of[one] == layout.item_of[two])
    tied &= (low[one] < high[two]) & (low[two] < high[one])
    for row in np.flatnonzero(tied)[:1].tolist():
        names = f"{buffers.name(int(one[row]))} and {buffers.name(int(two[row]))}"
        raise MalformedInputError(f"buffers {names} share an offset but must be apart; drop one constraint")
