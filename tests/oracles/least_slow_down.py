"""The oracle for recomputation and offload together: the fastest of all schedules of a tiny graph.

A shortest path over what is where and which copies are still under way. Ops run for the first time in program order,
run again whenever what they read is there, and every intermediate buffer may leave, go and come back at any time.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from lowtide.engine.graph import Graph, Lifetime

Instant = int | None
"""Seconds from now until a copy is complete; None where there is no copy."""


class _State(NamedTuple):
    place: int
    home: tuple[Instant, ...]
    """Per buffer, its copy on the device."""
    host: tuple[Instant, ...]
    """Per buffer, its copy on the host."""
    streams: tuple[int, int]

    def after(self, seconds: int) -> "_State":
        return _State(
            self.place,
            tuple([None if until is None else max(0, until - seconds) for until in self.home]),
            tuple([None if until is None else max(0, until - seconds) for until in self.host]),
            (max(0, self.streams[0] - seconds), max(0, self.streams[1] - seconds)),
        )


class _Program:
    """What the search asks a graph again and again."""

    def __init__(self, graph: Graph) -> None:
        self.sizes = graph.sizes.tolist()
        self.outputs = [b for b in range(graph.n_buffers) if graph.lifetimes[b] == Lifetime.OUTPUT]
        self.movable = [b for b in range(graph.n_buffers) if graph.lifetimes[b] == Lifetime.INTERMEDIATE]
        self.reads = [row.tolist() for row in map(graph.reads.__getitem__, range(graph.n_ops))]
        self.written = [graph.writes[op].tolist()[0] for op in range(graph.n_ops)]
        self.seconds = [int(cost) for cost in graph.cost]
        self.n_ops = graph.n_ops


def least_slow_down(graph: Graph, budget_bytes: int, *, rerun: bool = True, offload: bool = True) -> int | None:
    """Return the fewest extra seconds within a budget, or None where nothing fits, for a graph of one output per op
    whose costs are whole seconds, and streams of one byte per second."""
    program = _Program(graph)
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
        for taken, reached in _moves(program, state, budget_bytes, rerun, offload):
            total = seconds + taken
            if total < best.get(reached, total + 1):
                best[reached] = total
                heappush(queue, (total, next(number), reached))
    return None


def _moves(program: _Program, state: _State, budget: int, rerun: bool, offload: bool) -> Iterator[tuple[int, _State]]:
    place, home, host, streams = state
    sizes = program.sizes
    free = budget - sum([size for size, there in zip(sizes, home, strict=True) if there is not None])
    if place == program.n_ops and all(home[b] is not None for b in program.outputs):
        yield max(streams), state._replace(place=place + 1)
    for op in range(min(program.n_ops, place + 1) if rerun else program.n_ops):
        if not rerun and op != place:
            continue
        written = program.written[op]
        waits = [home[read] for read in program.reads[op]]
        if None in waits or home[written] is not None or sizes[written] > free:
            continue
        seconds = max((wait for wait in waits if wait is not None), default=0) + program.seconds[op]
        later = state.after(seconds)
        yield seconds, later._replace(home=_with(later.home, written, 0), place=place + (op == place))
    for buffer in program.movable:
        there, copy = home[buffer], host[buffer]
        if there is not None:
            wait = max(there, copy or 0)
            later = state.after(wait)
            yield wait, later._replace(home=_with(later.home, buffer, None))
            if offload and copy is None:
                done = max(streams[0], there) + sizes[buffer]
                yield 0, _State(place, home, _with(host, buffer, done), (done, streams[1]))
        elif offload and copy is not None and sizes[buffer] <= free:
            done = max(streams[1], copy) + sizes[buffer]
            yield 0, _State(place, _with(home, buffer, done), host, (streams[0], done))


def _with(copies: tuple[Instant, ...], buffer: int, instant: Instant) -> tuple[Instant, ...]:
    return (*copies[:buffer], instant, *copies[buffer + 1 :])
