"""Two ways to choose what to drop without a solver: greedily, and by what one place alone can say."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import OpId, Place
from lowtide.engine.graph import Lifetime
from lowtide.engine.recompute.floor import Needs, possible_pairs
from lowtide.engine.recompute.program import Drops, Program, first_run_at

_THERE, _KEEP_OR_RERUN, _KEEP_ONLY = 0, 1, 2  # shared with the native kernel
_MOST_MINIMUM_CUTS = 40
_LEAN = 0.005
"""How much dearer running the last op again is made, so that no two layers cost the same."""


def drop_until_it_fits(program: Program, drops: Drops, budget_bytes: int, max_work: int) -> tuple[bool, Drops]:
    """Drop more than the given drops do until the peak is within the budget, then keep again what need not go.

    At the peak, the buffers that are resident and idle are ranked by what it costs per byte to make them again. The
    best few are played, and the one is dropped that lowers the bytes over budget, summed over the plan, for the least
    extra cost. Returns whether the budget was met, and the drops; if it was not, dropping more did not help or the work
    was used up. O(drops * accesses of the plan), native; `max_work` limits the accesses played.
    """
    fits, moments, listed = program.native.fit(drops.moments, drops.listed.ravel(), budget_bytes, max_work)
    return fits, Drops(moments, listed.reshape(-1, 2))


@dataclass(frozen=True, slots=True, eq=False)
class PlaceTrade:
    """What memory at one place says about a budget."""

    bound: float
    """What any plan within the budget costs at least, on top of running every op once."""
    choices: tuple[Drops, ...]
    """What to drop there: a choice whose bytes fit, and a cheaper one that is somewhat over."""


def trade_at(
    program: Program, needs: Needs, place: Place, budget_bytes: int, staying: NDArray[np.bool_] | None = None
) -> PlaceTrade:
    """Weigh bytes at the first run of the op at a place against the cost of running again what is missing after it.

    With a price for bytes this is a closure problem, solved by one minimum cut; the price is searched for (Lagrange).
    The bound is that of the linear relaxation of `place_model` with this place only. Buffers may be named that stay
    there, whatever that costs; the bound is then one of plans in which they do. O(minimum cuts), native.
    """
    graph, order = program.problem.graph, program.order
    structure = graph.structure
    first, last, remade = needs.first, needs.last, needs.remade
    op = int(order[place])
    present = np.zeros(graph.n_buffers, np.bool_)
    present[structure.touches[op]] = present[structure.allocates[op]] = True
    exists = first <= place
    free = (graph.sizes == 0) | (graph.exists_at_start & graph.exists_at_end) | (~remade & (last > place))

    at_cut = np.where(remade, _KEEP_OR_RERUN, _KEEP_ONLY).astype(np.uint8)
    at_cut[free | ~exists | (present & ~_taken_over(program, needs, op))] = _THERE
    stays = np.zeros(graph.n_buffers, np.bool_) if staying is None else staying & (at_cut != _THERE)
    at_cut[stays] = _THERE
    needed = _used_after(program, place) & exists & ~free
    capacity = budget_bytes - int(needs.total[place]) - int(program.counted_sizes[stays].sum())
    bound, _, kept, tight = program.native.trade_at_cut(
        at_cut, needed.view(np.uint8), program.counted_sizes, capacity, _MOST_MINIMUM_CUTS
    )
    moment = first_run_at(place)
    last_use = program.native.last_use
    choices: list[Drops] = []
    for chosen in (kept, tight):
        is_kept = (chosen > 0) | stays
        listed = np.flatnonzero(((at_cut != _THERE) | stays) & ~present & (is_kept != (last_use >= moment)))
        rows = np.column_stack([np.full(len(listed), moment), listed]).astype(np.int32)
        choices.append(Drops(np.asarray([moment], np.int32), rows))
    return PlaceTrade(max(0.0, bound), tuple(choices))


def leaning(program: Program) -> Program:
    """Return a program whose costs rise a little along its order, for choices only.

    A network that repeats a block ties the costs of all its blocks: at any price, all or none of them drop the same. So
    told apart, as many drop it as the budget asks for, the first ones first, which come back last.
    """
    rising = 1 + _LEAN * program.places / max(1, len(program.order))
    return Program(program.problem, program.order, program.cost * rising, program.space)


def _used_after(program: Program, place: Place) -> NDArray[np.bool_]:
    """Return, per buffer, whether an op after a place touches it or the end needs it."""
    graph = program.problem.graph
    used = graph.lifetimes == Lifetime.OUTPUT
    users = graph.structure.users
    used[users.owners()[program.places[users.values] > place]] = True
    return used


def _taken_over(program: Program, needs: Needs, op: OpId) -> NDArray[np.bool_]:
    """Return, per buffer, whether keeping it beyond an op costs that op an in-place pair that no other can replace."""
    taken = np.zeros(program.problem.graph.n_buffers, np.bool_)
    pairs = possible_pairs(program, op, needs.pinned_until)
    reads, written = [read for read, _ in pairs], [write for _, write in pairs]
    for read, write in pairs:
        taken[read] = reads.count(read) == written.count(write) == 1
    return taken
