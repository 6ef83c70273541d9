"""One cut alone: what to keep there and what to run again, nearly optimal and bounded without any solver."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.graph import Lifetime
from lowtide.recompute.floor import Needs, can_be_remade, first_and_last_use, possible_pairs
from lowtide.recompute.program import Cuts, Program

_THERE, _KEEP_OR_RERUN, _KEEP_ONLY = 0, 1, 2  # shared with the native kernel
_MOST_MINIMUM_CUTS = 40


@dataclass(frozen=True, slots=True, eq=False)
class CutTrade:
    """What one cut says about a budget."""

    bound: float
    """No plan within the budget costs less extra."""
    choices: tuple[Cuts, ...]
    """What to drop at the cut: a choice whose bytes fit there, and a cheaper one that is somewhat over."""


def trade_at(program: Program, needs: Needs, place: int, budget_bytes: int) -> CutTrade:
    """Weigh bytes at the first run of the op at a place against the cost of running again what is missing after it.

    With a price for bytes this is a closure problem, solved by one minimum cut; the price is searched for (Lagrange).
    The bound is that of the linear relaxation of `cut_model` with this place only. O(minimum cuts), native.
    """
    graph, order = program.problem.graph, program.order
    structure = graph.structure
    first, last = first_and_last_use(program)
    remade = can_be_remade(graph)
    op = int(order[place])
    present = np.zeros(graph.n_buffers, np.bool_)
    present[structure.touches[op]] = present[structure.allocates[op]] = True
    exists = first <= place
    free = (graph.sizes == 0) | (graph.lifetimes <= Lifetime.INPUT) | (~remade & (last > place))

    at_cut = np.where(remade, _KEEP_OR_RERUN, _KEEP_ONLY).astype(np.uint8)
    at_cut[free | ~exists | (present & ~_taken_over(program, needs, op))] = _THERE
    needed = _used_after(program, place) & exists & ~free
    capacity = budget_bytes - int(needs.total[place])
    bound, _, kept, tight = program.native.trade_at_cut(
        at_cut, needed.view(np.uint8), program.counted_sizes, capacity, _MOST_MINIMUM_CUTS
    )
    moment = 2 * place + 1
    last_use = program.native.last_use
    choices: list[Cuts] = []
    for chosen in (kept, tight):
        listed = np.flatnonzero((at_cut != _THERE) & ~present & ((chosen > 0) != (last_use >= moment)))
        rows = np.column_stack([np.full(len(listed), moment), listed]).astype(np.int32)
        choices.append(Cuts(np.asarray([moment], np.int32), rows))
    return CutTrade(max(0.0, bound), tuple(choices))


def _used_after(program: Program, place: int) -> NDArray[np.bool_]:
    """Return, per buffer, whether an op after a place touches it or the end needs it."""
    graph = program.problem.graph
    used = graph.lifetimes == Lifetime.OUTPUT
    users = graph.structure.users
    used[users.owners()[program.places[users.values] > place]] = True
    return used


def _taken_over(program: Program, needs: Needs, op: int) -> NDArray[np.bool_]:
    """Return, per buffer, whether keeping it beyond an op costs that op an in-place pair that no other can replace."""
    taken = np.zeros(program.problem.graph.n_buffers, np.bool_)
    pairs = possible_pairs(program, op, needs.pinned_until)
    reads, written = [read for read, _ in pairs], [write for _, write in pairs]
    for read, write in pairs:
        taken[read] = reads.count(read) == written.count(write) == 1
    return taken
