"""The oracle for recomputation and offload together: the fastest of all schedules of a tiny graph.

A shortest path over what is where and which copies are still under way. Ops run for the first time in program order,
run again whenever what they read is there, and every intermediate buffer may leave, go and come back at any time.
"""

from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count

from lowtide.graph import Graph, Lifetime


@dataclass(frozen=True)
class _State:
    """Seconds count from now on."""

    place: int
    home: tuple[int | None, ...]
    """Per buffer: absent, or until its copy to the device is complete."""
    host: tuple[int | None, ...]
    """Per buffer: no copy on the host, or until it is complete."""
    lanes: tuple[int, int]

    def after(self, seconds: int) -> "_State":
        def left(until: int | None) -> int | None:
            return None if until is None else max(0, until - seconds)

        lanes = (max(0, self.lanes[0] - seconds), max(0, self.lanes[1] - seconds))
        return replace(self, home=tuple(map(left, self.home)), host=tuple(map(left, self.host)), lanes=lanes)


def least_slow_down(graph: Graph, budget_bytes: int, *, rerun: bool = True, offload: bool = True) -> int | None:
    """Return the fewest extra seconds within a budget, or None where nothing fits, for a graph of one output per op
    whose costs are whole seconds, and lanes of one byte per second."""
    sizes = graph.sizes.tolist()
    home = tuple(0 if lifetime <= Lifetime.DONATED else None for lifetime in graph.lifetimes.tolist())
    start = _State(0, home, (None,) * graph.n_buffers, (0, 0))
    best = {start: 0}
    number = count()
    queue = [(0, next(number), start)]
    while queue:
        seconds, _, state = heappop(queue)
        if best[state] < seconds:
            continue
        if state.place == graph.n_ops + 1:
            return seconds - int(graph.cost.sum())
        for taken, reached in _moves(graph, state, sizes, budget_bytes, rerun, offload):
            total = seconds + taken
            if total < best.get(reached, total + 1):
                best[reached] = total
                heappush(queue, (total, next(number), reached))
    return None


def _moves(graph: Graph, state: _State, sizes: list[int], budget: int, rerun: bool, offload: bool):
    resident = sum(size for size, there in zip(sizes, state.home, strict=True) if there is not None)
    outputs = [b for b in range(graph.n_buffers) if graph.lifetimes[b] == Lifetime.OUTPUT]
    if state.place == graph.n_ops and all(state.home[b] is not None for b in outputs):
        yield max(state.lanes), replace(state, place=state.place + 1)
    for op in range(min(graph.n_ops, state.place + 1) if rerun else graph.n_ops):
        if not rerun and op != state.place:
            continue
        (written,) = graph.writes[op].tolist()
        waits = [state.home[read] for read in graph.reads[op].tolist()]
        if None in waits or state.home[written] is not None or resident + sizes[written] > budget:
            continue
        seconds = max((wait for wait in waits if wait is not None), default=0) + int(graph.cost[op])
        later = state.after(seconds)
        home = (*later.home[:written], 0, *later.home[written + 1 :])
        yield seconds, replace(later, home=home, place=state.place + (op == state.place))
    for buffer, there in enumerate(state.home):
        if graph.lifetimes[buffer] != Lifetime.INTERMEDIATE:
            continue
        copy = state.host[buffer]
        if there is not None:
            wait = max(there, copy or 0)
            later = state.after(wait)
            yield wait, replace(later, home=(*later.home[:buffer], None, *later.home[buffer + 1 :]))
            if offload and copy is None:
                lane = max(state.lanes[0], there) + sizes[buffer]
                host = (*state.host[:buffer], lane, *state.host[buffer + 1 :])
                yield 0, replace(state, host=host, lanes=(lane, state.lanes[1]))
        elif offload and copy is not None and resident + sizes[buffer] <= budget:
            lane = max(state.lanes[1], copy) + sizes[buffer]
            home = (*state.home[:buffer], lane, *state.home[buffer + 1 :])
            yield 0, replace(state, home=home, lanes=(state.lanes[0], lane))
