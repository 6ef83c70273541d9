"""Offsets for buffers: a named rule, or the default that combines them all."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from lowtide.effort import DEFAULT_EFFORT, EffortName
from lowtide.errors import UsageError
from lowtide.packing.buffers import Buffers
from lowtide.packing.effort import PACK_EFFORTS
from lowtide.packing.items import Layout, items_of
from lowtide.packing.packed import Packed
from lowtide.packing.rules import RULES
from lowtide.packing.search import PackSearch
from lowtide.packing.validate import validate

if TYPE_CHECKING:
    from lowtide.plan import Status


def pack(
    buffers: Buffers,
    *,
    capacity: int | None = None,
    method: str | None = None,
    effort: EffortName = DEFAULT_EFFORT,
    progress: Callable[[str], None] | None = None,
) -> Packed:
    """Find offsets with the smallest arena, or with one of at most `capacity` bytes.

    `method` names one of the published rules to use instead of the search: "best-fit-by-size", "best-fit-by-birth",
    "best-fit-by-breadth", "first-fit-by-size", "first-fit-by-birth". `effort` is how much work the search may do; it is
    counted, not timed, so that every machine finds the same. The result is checked by `validate` before it is returned,
    and a packing is returned in every case: Ctrl-C or the end of the work give the best one so far, and its status says
    so.

    Raises UsageError for an unknown method or effort or a negative capacity, MalformedInputError for buffers that
    contradict one another.
    """
    if method is not None and method not in RULES:
        raise UsageError(f"unknown packing method {method!r}; choose one of {', '.join(RULES)}")
    if effort not in PACK_EFFORTS:
        raise UsageError(f"unknown effort {effort!r}; choose one of {', '.join(PACK_EFFORTS)}")
    if capacity is not None and capacity < 0:
        raise UsageError(f"capacity {capacity} is negative; give bytes >= 0")
    layout = items_of(buffers)
    search = PackSearch(layout.items, capacity, PACK_EFFORTS[effort], progress or _silent)
    interrupted = False
    try:
        if method is None:
            search.run()
        else:
            search.offer(RULES[method](layout.items), method)
    except KeyboardInterrupt:
        interrupted = True
        if not search.method:
            search.offer(RULES["best-fit-by-birth"](layout.items), "best-fit-by-birth")
    return _result(buffers, layout, search, capacity, interrupted)


def _silent(_stage: str) -> None:
    pass


def _result(buffers: Buffers, layout: Layout, search: PackSearch, capacity: int | None, interrupted: bool) -> Packed:
    offsets = layout.offsets_of(buffers, search.offsets)
    validate(buffers, offsets)
    arena, bound = search.height, search.bound.size_bytes
    status: Status = "optimal" if arena == bound else "feasible"
    if capacity is not None and arena > capacity:
        status = "infeasible" if bound > capacity else "stopped_by_work"
    return Packed(
        offsets=offsets,
        arena_bytes=arena,
        lower_bound_bytes=bound,
        status="interrupted" if interrupted and status != "optimal" else status,
        bound_holders=layout.buffers_of(search.bound.holders),
        conflict=(),
        method=search.method,
        work=search.work,
    )
