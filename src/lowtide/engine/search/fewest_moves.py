"""The order within a budget that moves the fewest ops, found by trying them in the order of moves."""

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from lowtide.engine.analysis.budget import Budget
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.search.plain_program import PlainProgram

_State = tuple[int, int]
"""The executed set as bits, and the place of the last op that kept its place."""


@dataclass(frozen=True, slots=True, eq=False)
class FewestMoves:
    """What the search by moves found."""

    order: Order | None
    least_moved: int
    """No order within the budget moves fewer ops than this."""


def fewest_moves(problem: Problem, budget: Budget, given: Order, most_looks: int) -> FewestMoves:
    """Find an order within a budget that moves the fewest ops from the given order.

    Shortest paths (Dijkstra) over pairs of an executed set and the last op that kept its place. An op that comes after
    all kept ones in the given order may keep its place; whatever it overtakes has to move. Exact if it ends; gives up
    after about `most_looks` looks at an op.
    """
    limits = budget.limits
    spaces = range(len(limits))
    programs = [PlainProgram(problem.graph, problem.transient, problem.in_place, space) for space in spaces]
    order = given.tolist()
    everything = (1 << len(order)) - 1
    start: _State = (0, -1)
    live_at_start = tuple(program.live_at_start(unused=False) for program in programs)
    came_from: dict[_State, tuple[_State, int]] = {}
    least: dict[_State, int] = {start: 0}
    waiting: list[tuple[int, int, int, _State, tuple[int, ...]]] = [(0, 0, 0, start, live_at_start)]
    looks = pushed = moved = 0
    while waiting and looks <= most_looks:
        moved, _, _, state, live = heappop(waiting)
        executed, last = state
        if executed == everything:
            return FewestMoves(_path(came_from, state), moved)
        if moved > least[state]:
            continue
        looks += len(order)
        overtaken = 0
        for place, op in enumerate(order):
            if not programs[0].may_run(op, executed):
                overtaken += place > last and not executed >> op & 1
                continue
            after = [program.run(op, executed) for program in programs]
            if all(now + more <= most for now, (more, _), most in zip(live, after, limits, strict=True)):
                then = tuple(now + net for now, (_, net) in zip(live, after, strict=True))
                ways = [(last, moved + (place > last))]
                if place > last:
                    ways.append((place, moved + overtaken))
                for kept, cost in ways:
                    reached = (executed | 1 << op, kept)
                    if cost < least.get(reached, len(order) + 1):
                        least[reached] = cost
                        came_from[reached] = (state, op)
                        pushed += 1
                        heappush(waiting, (cost, -reached[0].bit_count(), pushed, reached, then))
            overtaken += place > last
    return FewestMoves(None, moved)


def _path(came_from: dict[_State, tuple[_State, int]], state: _State) -> Order:
    ops: list[int] = []
    while state in came_from:
        state, op = came_from[state]
        ops.append(op)
    return np.asarray(ops[::-1], np.int32)
