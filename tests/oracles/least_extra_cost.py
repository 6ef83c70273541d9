"""The least cost of running ops again within a budget, over all plans there are: Dijkstra over what is resident."""

import heapq
from collections.abc import Sequence
from itertools import combinations

from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.graph.execution import ABSENT, Versions, program_versions

State = tuple[int, tuple[int, ...]]
"""The ops that ran, as the bits of an int, and the version of every buffer."""


def least_extra_cost(problem: Problem, budget: int, *, any_order: bool = False) -> float:
    """Return the least extra cost of any plan whose peak in space 0 is within the budget, infinity where there is none.

    First runs are in program order, or in `any_order` that keeps the dependences; any op that is pure and unordered and
    writes only what it allocates may run at any time.
    """
    graph = problem.graph
    versions = program_versions(graph)
    transient = [int(needed) for needed in problem.transient[:, 0]]
    sizes = [int(size) for size in graph.sizes]
    counts = [
        int(graph.buffer_spaces[b]) == 0 and graph.lifetimes[b] != Lifetime.PERSISTENT for b in range(graph.n_buffers)
    ]
    freeable = [graph.lifetimes[b] >= Lifetime.DONATED for b in range(graph.n_buffers)]

    counted = [size if counts[b] else 0 for b, size in enumerate(sizes)]
    accesses = [_accesses(versions, op) for op in range(graph.n_ops)]
    again = [runs_again(graph, op) for op in range(graph.n_ops)]

    def live(resident: Sequence[int]) -> int:
        return sum([size for size, version in zip(counted, resident, strict=True) if version != ABSENT])

    def after_run(resident: tuple[int, ...], op: int) -> list[tuple[int, ...]]:
        """All states that running an op leads to within the budget, by the in-place pairs it takes."""
        needed, own, left = accesses[op]
        if any(resident[buffer] != version for buffer, version in needed):
            return []
        then = list(resident)
        for buffer, version in left:
            then[buffer] = version
        doubled = sum([counted[b] for b in own if resident[b] != ABSENT])
        held = live(then) + doubled + transient[op]
        result: list[tuple[int, ...]] = []
        for taken in matchings(graph, op, own, resident) if problem.in_place else [()]:
            gone = [read for read, _ in taken]
            if held - sum([counted[read] for read in gone]) <= budget:
                result.append(tuple([ABSENT if b in gone else v for b, v in enumerate(then)]))
        return result

    start: State = (0, tuple(0 if graph.lifetimes[b] <= Lifetime.DONATED else ABSENT for b in range(graph.n_buffers)))
    if live(start[1]) > budget:
        return float("inf")
    n_ops, costs = graph.n_ops, graph.cost.tolist()
    all_ops = (1 << n_ops) - 1
    waits_for = [sum(1 << earlier for earlier in row) for row in graph.structure.predecessors]
    if not any_order:
        waits_for = [(1 << op) - 1 for op in range(n_ops)]
    keeps = [b for b in range(graph.n_buffers) if not freeable[b] or graph.lifetimes[b] == Lifetime.OUTPUT]
    best: dict[State, float] = {start: 0.0}
    queue: list[tuple[float, State]] = [(0.0, start)]
    while queue:
        cost, state = heapq.heappop(queue)
        if cost > best[state]:
            continue
        done, resident = state
        if done == all_ops and all(resident[b] == versions.final[b] for b in keeps):
            return cost
        following: list[tuple[float, State]] = []
        for buffer, version in enumerate(resident):
            if version != ABSENT and freeable[buffer]:
                following.append((cost, (done, (*resident[:buffer], ABSENT, *resident[buffer + 1 :]))))
        for op in range(n_ops):
            if done >> op & 1 and again[op]:
                following += [(cost + costs[op], (done, then)) for then in after_run(resident, op)]
            elif not done >> op & 1 and waits_for[op] & ~done == 0:
                following += [(cost, (done | 1 << op, then)) for then in after_run(resident, op)]
        for reached, state in following:
            if reached < best.get(state, float("inf")):
                best[state] = reached
                heapq.heappush(queue, (reached, state))
    return float("inf")


def _accesses(versions: Versions, op: int) -> tuple[list[tuple[int, int]], list[int], list[tuple[int, int]]]:
    """Return what an op needs (buffer, version), the buffers it allocates, and what it leaves (buffer, version)."""
    first, writes, end = versions.first[op], versions.writes_from[op], versions.first[op + 1]
    seen = [(versions.buffers[access], versions.seen[access]) for access in range(first, end)]
    needed = [(buffer, version) for buffer, version in seen if version != ABSENT]
    own = [buffer for buffer, version in seen if version == ABSENT]
    return needed, own, [(buffer, version + 1) for buffer, version in seen[writes - first :]]


def runs_again(graph: Graph, op: int) -> bool:
    """Whether an op is of the class that may run twice."""
    own = graph.structure.allocates[op].tolist()
    only_own = not len(graph.mutates[op]) and set(graph.writes[op].tolist()) == set(own)
    pure = bool(graph.pure[op]) and (not graph.ordered[op] or graph.ranks[op] > 1)
    return (pure or bool(graph.repeatable[op])) and only_own


def matchings(graph: Graph, op: int, own: list[int], resident: tuple[int, ...]) -> list[tuple[tuple[int, int], ...]]:
    """All sets of in-place pairs that an op can take at once."""
    flat = graph.in_place[op].tolist()
    usable = [
        (read, written)
        for read, written in dict.fromkeys(zip(flat[::2], flat[1::2], strict=True))
        if written in own
        and resident[written] == ABSENT
        and graph.lifetimes[read] in (Lifetime.DONATED, Lifetime.INTERMEDIATE)
        and graph.sizes[read] == graph.sizes[written]
        and graph.buffer_spaces[read] == graph.buffer_spaces[written]
    ]
    return [
        chosen
        for count in range(len(usable) + 1)
        for chosen in combinations(usable, count)
        if len({buffer for pair in chosen for buffer in pair}) == 2 * count
    ]
