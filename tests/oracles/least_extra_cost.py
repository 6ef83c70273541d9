"""The least cost of running ops again within a budget, over all plans there are: Dijkstra over what is resident."""

import heapq
from itertools import combinations

from lowtide.analysis import Problem
from lowtide.graph import Graph, Lifetime
from lowtide.plan.versions import ABSENT, program_versions

State = tuple[int, tuple[int, ...]]
"""How many ops ran for the first time (in program order), and the version of every buffer."""


def least_extra_cost(problem: Problem, budget: int) -> float:
    """Return the least extra cost of any plan in program order whose peak in space 0 is within the budget, infinity
    where there is none; any op that is pure and unordered and writes only what it allocates may run at any time."""
    graph = problem.graph
    versions = program_versions(graph)
    transient = [int(needed) for needed in problem.transient[:, 0]]
    sizes = [int(size) for size in graph.sizes]
    counts = [
        int(graph.buffer_spaces[b]) == 0 and graph.lifetimes[b] != Lifetime.PERSISTENT for b in range(graph.n_buffers)
    ]
    freeable = [graph.lifetimes[b] >= Lifetime.DONATED for b in range(graph.n_buffers)]

    def live(resident: tuple[int, ...]) -> int:
        return sum(sizes[b] for b, version in enumerate(resident) if version != ABSENT and counts[b])

    def after_run(resident: tuple[int, ...], op: int) -> list[tuple[int, ...]]:
        """All states that running an op leads to within the budget, by the in-place pairs it takes."""
        first, writes, end = versions.first[op], versions.writes_from[op], versions.first[op + 1]
        own: list[int] = []
        for access in range(first, end):
            buffer, seen = versions.buffers[access], versions.seen[access]
            if seen != ABSENT and resident[buffer] != seen:
                return []
            if seen == ABSENT:
                own.append(buffer)
        then = list(resident)
        for access in range(writes, end):
            then[versions.buffers[access]] = versions.seen[access] + 1
        doubled = sum(sizes[b] for b in own if counts[b] and resident[b] != ABSENT)
        result: list[tuple[int, ...]] = []
        for taken in matchings(graph, op, own, resident) if problem.in_place else [()]:
            shared = sum(sizes[read] for read, _ in taken if counts[read])
            if live(tuple(then)) + doubled + transient[op] - shared <= budget:
                result.append(tuple(ABSENT if b in {read for read, _ in taken} else v for b, v in enumerate(then)))
        return result

    start: State = (0, tuple(0 if graph.lifetimes[b] <= Lifetime.DONATED else ABSENT for b in range(graph.n_buffers)))
    if live(start[1]) > budget:
        return float("inf")
    best: dict[State, float] = {start: 0.0}
    queue = [(0.0, start)]
    while queue:
        cost, state = heapq.heappop(queue)
        if cost > best[state]:
            continue
        done, resident = state
        if done == graph.n_ops and all(
            (freeable[b] and graph.lifetimes[b] != Lifetime.OUTPUT) or resident[b] == versions.final[b]
            for b in range(graph.n_buffers)
        ):
            return cost
        following: list[tuple[float, State]] = []
        for buffer, version in enumerate(resident):
            if version != ABSENT and freeable[buffer]:
                following.append((cost, (done, (*resident[:buffer], ABSENT, *resident[buffer + 1 :]))))
        if done < graph.n_ops:
            following += [(cost, (done + 1, then)) for then in after_run(resident, done)]
        for op in range(done):
            if runs_again(graph, op):
                following += [(cost + float(graph.cost[op]), (done, then)) for then in after_run(resident, op)]
        for reached, state in following:
            if reached < best.get(state, float("inf")):
                best[state] = reached
                heapq.heappush(queue, (reached, state))
    return float("inf")


def runs_again(graph: Graph, op: int) -> bool:
    """Whether an op is of the class that may run twice."""
    own = graph.structure.allocates[op].tolist()
    only_own = not len(graph.mutates[op]) and set(graph.writes[op].tolist()) == set(own)
    return bool(graph.pure[op]) and not graph.ordered[op] and only_own


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
