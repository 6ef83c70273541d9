"""Choose drops greedily, or by a minimum cut."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import OpId, Place
from lowtide.engine.graph import Lifetime
from lowtide.engine.recompute.floor import Needs, possible_pairs
from lowtide.engine.recompute.program import Drops, OrderedProgram, first_run_at

_THERE, _KEEP_OR_RERUN, _KEEP_ONLY = 0, 1, 2  # values of the native kernel
_MAX_MINIMUM_CUTS = 40
_COST_RISE = 0.005
_MAX_WEIGHED = 600_000
"""Limit on ops times places, about 1,000,000 per second."""


def drop_until_it_fits(
    program: OrderedProgram, drops: Drops, budget_bytes: int, max_work: int, max_cost: float = math.inf
) -> tuple[bool, Drops]:
    """Add drops until the peak fits, then remove unneeded ones; return success and drops.

    Each step drops the idle buffer that saves most bytes over budget per extra cost. Stops above `max_cost` or after
    `max_work` accesses. O(drops * accesses), native.
    """
    fits, moments, listed = program.native.fit(drops.moments, drops.listed.ravel(), budget_bytes, max_work, max_cost)
    return fits, Drops(moments, listed.reshape(-1, 2))


@dataclass(frozen=True, slots=True, eq=False)
class PlaceTrade:
    """Memory at one place, traded for recompute cost."""

    bound: float
    choices: tuple[Drops, ...]
    """A choice that fits at the place, and a cheaper one slightly over."""


def trade_at(
    program: OrderedProgram, needs: Needs, place: Place, budget_bytes: int, staying: NDArray[np.bool_] | None = None
) -> PlaceTrade:
    """Trade bytes kept at a place for the cost of recomputing missing buffers after it.

    The bound is that of the linear relaxation of `place_model` with one place, found by minimum cuts at varied prices
    per byte (Lagrange). Buffers in `staying` are kept. Native.
    """
    graph, order = program.problem.graph, program.order
    structure = graph.structure
    first, last, recomputable = needs.first, needs.last, needs.recomputable
    op = int(order[place])
    present = np.zeros(graph.n_buffers, np.bool_)
    present[structure.touches[op]] = present[structure.allocates[op]] = True
    exists = first <= place
    free = (graph.sizes == 0) | (graph.exists_at_start & graph.exists_at_end) | (~recomputable & (last > place))

    at_cut = np.where(recomputable, _KEEP_OR_RERUN, _KEEP_ONLY).astype(np.uint8)
    at_cut[free | ~exists | (present & ~_needed_for_pairs(program, needs, op))] = _THERE
    stays = np.zeros(graph.n_buffers, np.bool_) if staying is None else staying & (at_cut != _THERE)
    at_cut[stays] = _THERE
    needed = _used_after(program, place) & exists & ~free
    capacity = budget_bytes - int(needs.total[place]) - int(program.counted_sizes[stays].sum())
    bound, _, kept, tight = program.native.trade_at_cut(
        at_cut, needed.view(np.uint8), program.counted_sizes, capacity, _MAX_MINIMUM_CUTS
    )
    moment = first_run_at(place)
    last_use = program.native.last_use
    choices: list[Drops] = []
    for chosen in (kept, tight):
        meets_promise = (chosen > 0) | stays
        listed = np.flatnonzero(((at_cut != _THERE) | stays) & ~present & (meets_promise != (last_use >= moment)))
        rows = np.column_stack([np.full(len(listed), moment), listed]).astype(np.int32)
        choices.append(Drops(np.asarray([moment], np.int32), rows))
    return PlaceTrade(max(0.0, bound), tuple(choices))


def with_rising_costs(program: OrderedProgram) -> OrderedProgram:
    """Return the program with slightly rising costs, for choices only.

    With equal costs, all repeated blocks drop a buffer or none does.
    """
    rising = 1 + _COST_RISE * program.places / max(1, len(program.order))
    return OrderedProgram(program.problem, program.order, program.cost * rising, program.space)


def _used_after(program: OrderedProgram, place: Place) -> NDArray[np.bool_]:
    graph = program.problem.graph
    used = graph.lifetimes == Lifetime.OUTPUT
    users = graph.structure.users
    used[users.owners()[program.places[users.values] > place]] = True
    return used


def _needed_for_pairs(program: OrderedProgram, needs: Needs, op: OpId) -> NDArray[np.bool_]:
    taken = np.zeros(program.problem.graph.n_buffers, np.bool_)
    pairs = possible_pairs(program, op, needs.pinned_until)
    reads, written = [read for read, _ in pairs], [write for _, write in pairs]
    for read, write in pairs:
        taken[read] = reads.count(read) == written.count(write) == 1
    return taken


@dataclass(frozen=True, slots=True)
class PlaceBound:
    """A lower bound on the extra cost from one place."""

    place: Place
    bound: float


def bounds_by_place(
    program: OrderedProgram, needs: Needs, live: NDArray[np.int64], budget_bytes: int
) -> list[PlaceBound]:
    """Return bounds from places where the unmodified program exceeds a budget, highest first.

    `live` are its bytes by place. O(places * minimum cuts), native.
    """
    over = np.flatnonzero(live > budget_bytes)
    most = max(1, _MAX_WEIGHED // max(1, len(program.order)))
    idle = np.maximum(live - needs.total, 1)
    share = (live - budget_bytes) / idle
    weighed = over[np.lexsort((over, -share[over]))][:most]
    found = [PlaceBound(place, trade_at(program, needs, place, budget_bytes).bound) for place in weighed.tolist()]
    return sorted(found, key=lambda each: (-each.bound, each.place))
