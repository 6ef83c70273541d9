"""Offsets for buffers, from the cheapest rule to exact search."""

from collections.abc import Callable

import numpy as np

from lowtide.packing.best_fit_by_birth import BestFitByBirth
from lowtide.packing.buffers import Buffers
from lowtide.packing.greedy_by_size import GreedyBySize
from lowtide.packing.packed import Packed


def pack(
    buffers: Buffers,
    *,
    capacity: int | None = None,
    method: str | None = None,
    effort: str = "balanced",
    progress: Callable[[str], None] | None = None,
) -> Packed:
    """Find offsets with the smallest arena, or with one of at most `capacity` bytes."""
    alignment = int(buffers.alignment.max(initial=1))
    candidates = {
        name: rule.offsets(buffers.first, buffers.last, buffers.sizes, alignment)
        for name, rule in (("best-fit-by-size", GreedyBySize()), ("best-fit-by-birth", BestFitByBirth()))
    }
    name = min(candidates, key=lambda name: int((candidates[name] + buffers.sizes).max(initial=0)))
    arena = int((candidates[name] + buffers.sizes).max(initial=0))
    times = np.concatenate([buffers.first, buffers.last])
    order = np.argsort(times, kind="stable")
    live = np.concatenate([buffers.sizes, -buffers.sizes])[order].cumsum()
    ends = np.flatnonzero(np.diff(times[order], append=times.max(initial=0) + 1))
    bound = int(live[ends].max(initial=0))
    return Packed(
        offsets=candidates[name],
        arena_bytes=arena,
        lower_bound_bytes=bound,
        status="optimal" if arena == bound else "feasible",
        bound_holders=(),
        conflict=(),
        method=name,
        work=len(buffers),
    )
