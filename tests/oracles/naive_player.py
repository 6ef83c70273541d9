"""The oracle of simulator and verifier: plays plans over plain sets, tries everything, knows no clever structure.

It looks only at the ops and buffers of a graph as objects. Contents are nested tuples that spell out how a value was
computed, so that two contents are equal exactly when they were computed in the same way.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache
from itertools import combinations
from typing import Any

from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.plan import CopyIn, CopyOut, Free, Run, Step
from tests.oracles.records import buffer_of, op_of

Content = tuple[Any, ...]
Peaks = tuple[int, ...]


class WrongExecutionError(Exception):
    """The steps do not do what the program does."""


def commute(graph: Graph, earlier: int, later: int) -> bool:
    """Say whether two ops, the first one earlier in the program, may swap their places when nothing is between them."""
    one, two = op_of(graph, earlier), op_of(graph, later)
    written_one, written_two = {*one.writes, *one.mutates}, {*two.writes, *two.mutates}
    used_one, used_two = written_one | set(one.reads), written_two | set(two.reads)
    shared = (written_one & used_two) | (used_one & written_two)
    return not (shared or earlier in two.after or (one.ordered and two.ordered))


def valid_orders(graph: Graph) -> Iterator[list[int]]:
    """Yield every order of the ops in which no two ops that do not commute have changed places."""
    before = [{i for i in range(j) if not commute(graph, i, j)} for j in range(graph.n_ops)]

    def extend(order: list[int]) -> Iterator[list[int]]:
        if len(order) == graph.n_ops:
            yield order
        for op in range(graph.n_ops):
            if op not in order and before[op] <= set(order):
                yield from extend([*order, op])

    yield from extend([])


@lru_cache(4096)
def uses(graph: Graph, op: int) -> frozenset[int]:
    """Return every buffer an op reads, mutates or writes."""
    record = op_of(graph, op)
    return frozenset([*record.reads, *record.mutates, *record.writes])


@lru_cache(64)
def allocations(graph: Graph) -> list[frozenset[int]]:
    """Return per op the buffers that did not exist before it in program order."""
    existing = {b for b in range(graph.n_buffers) if buffer_of(graph, b).lifetime.exists_at_start}
    result: list[frozenset[int]] = []
    for op in range(graph.n_ops):
        result.append(frozenset(op_of(graph, op).writes) - existing)
        existing |= set(op_of(graph, op).writes)
    return result


@lru_cache(4096)
def transient(graph: Graph, op: int) -> Peaks:
    """Return the bytes per memory space that an op needs only while it runs; callees run in their program order."""
    record = op_of(graph, op)
    names = [space.name for space in graph.spaces]
    results = [buffer_of(graph, b) for b in allocations(graph)[op] | set(record.mutates)]
    own = [b for b in results if b.lifetime != Lifetime.PERSISTENT]
    needed = [0] * len(names)
    for place, name in enumerate(names):
        for callee in (graph.subgraphs[callee] for callee in record.callees):
            peaks = order_peaks(callee, range(callee.n_ops))
            by_name = {space.name: peak for space, peak in zip(callee.spaces, peaks, strict=True)}
            needed[place] = max(needed[place], by_name.get(name, 0))
        if record.callees and record.kind in ("while", "call", "conditional"):
            needed[place] = max(0, needed[place] - sum(b.size_bytes for b in own if b.space == place))
    needed[names.index(record.device) if record.device in names else 0] += record.scratch_bytes
    return tuple(needed)


def order_peaks(graph: Graph, order: Sequence[int], *, in_place: bool = False) -> Peaks:
    """Return the peak per memory space of an order that frees at last use, with the best choice of in-place pairs."""
    fresh = allocations(graph)
    freeable = {b for b in range(graph.n_buffers) if buffer_of(graph, b).lifetime.freeable}
    alive = {b for b in range(graph.n_buffers) if buffer_of(graph, b).lifetime.exists_at_start}
    peaks = _live(graph, _at_home(graph, alive))
    for place, op in enumerate(order):
        alive -= freeable - _used_by(graph, order[place:])
        dying = (freeable & alive) - _used_by(graph, order[place + 1 :])
        alive |= fresh[op]
        live = _live(graph, _at_home(graph, alive))
        saved = _best_saving(graph, op, dying, fresh[op]) if in_place else (0,) * len(peaks)
        now = zip(peaks, live, transient(graph, op), saved, strict=True)
        peaks = tuple(max(peak, here + extra - less) for peak, here, extra, less in now)
    return peaks


def play(graph: Graph, steps: Sequence[Step]) -> Peaks:
    """Play steps, callees in program order, and return the peak per memory space; raises WrongExecutionError."""
    seen, final = _program_contents(graph)
    fresh = allocations(graph)
    buffers = [buffer_of(graph, b) for b in range(graph.n_buffers)]
    copies: dict[tuple[int, int], Content] = {
        (b.id, b.space): ("start", b.id) for b in buffers if b.lifetime.exists_at_start
    }
    peaks = _live(graph, copies)
    ran: list[int] = []
    for step in steps:
        held = list(copies)
        extra = (0,) * len(graph.spaces)
        match step:
            case Run(op, pairs):
                record = op_of(graph, op)
                own = not record.mutates and set(record.writes) <= fresh[op]
                may = record.repeatable or (record.pure and (not record.ordered or record.ranks > 1))
                _require(op not in ran or (may and own))
                _require(op in ran or set(record.after) <= set(ran))
                _require(op in ran or not record.ordered or not any(op_of(graph, o).ordered and o > op for o in ran))
                for buffer in uses(graph, op) - fresh[op]:
                    _require(copies.get((buffer, buffers[buffer].space)) == seen[op][buffer])
                taken = [buffer for pair in pairs for buffer in pair]
                _require(len(set(taken)) == len(taken))
                for read, written in pairs:
                    _require((read, written) in record.in_place and buffers[read].lifetime.freeable)
                    _require(buffers[read].size_bytes == buffers[written].size_bytes)
                    _require(buffers[read].space == buffers[written].space)
                    _require(written in fresh[op] and (written, buffers[written].space) not in copies)
                gone = [(read, buffers[read].space) for read, _ in pairs]
                held = [copy for copy in copies if copy not in gone] + [(b, buffers[b].space) for b in fresh[op]]
                extra = transient(graph, op)
                for buffer in {*record.writes, *record.mutates}:
                    copies[buffer, buffers[buffer].space] = _content(op, seen[op])
                for copy in gone:
                    del copies[copy]
                ran.append(op)
            case Free(buffer, space):
                place = buffers[buffer].space if space is None else space
                _require((buffer, place) in copies)
                del copies[buffer, place]
                held = list(copies)
            case CopyOut(buffer, space):
                _require((buffer, buffers[buffer].space) in copies and (buffer, space) not in copies)
                copies[buffer, space] = copies[buffer, buffers[buffer].space]
                held = list(copies)
            case CopyIn(buffer, space):
                home = buffers[buffer].space
                _require((buffer, space) in copies and (buffer, home) not in copies)
                copies[buffer, home] = copies[buffer, space]
                held = list(copies)
        now = zip(peaks, _live(graph, held), extra, strict=True)
        peaks = tuple(max(peak, live + more) for peak, live, more in now)
    _require(set(ran) == set(range(graph.n_ops)))
    for buffer in buffers:
        if not buffer.lifetime.freeable:
            _require(copies.get((buffer.id, buffer.space)) == final[buffer.id])
    return peaks


def _require(condition: bool) -> None:
    if not condition:
        raise WrongExecutionError


@lru_cache(64)
def _program_contents(graph: Graph) -> tuple[list[dict[int, Content]], dict[int, Content]]:
    """Return, per op, the contents of what it touches as the program order shows them to it, and the last contents."""
    now: dict[int, Content] = {
        b: ("start", b) for b in range(graph.n_buffers) if buffer_of(graph, b).lifetime.exists_at_start
    }
    seen: list[dict[int, Content]] = []
    for op in range(graph.n_ops):
        seen.append({b: now[b] for b in uses(graph, op) if b in now})
        for buffer in {*op_of(graph, op).writes, *op_of(graph, op).mutates}:
            now[buffer] = _content(op, seen[op])
    return seen, now


def _content(op: int, seen: dict[int, Content]) -> Content:
    return (op, tuple((buffer, seen[buffer]) for buffer in sorted(seen)))


def _used_by(graph: Graph, ops: Iterable[int]) -> frozenset[int]:
    return frozenset[int]().union(*(uses(graph, op) for op in ops))


def _at_home(graph: Graph, buffers: Iterable[int]) -> list[tuple[int, int]]:
    return [(buffer, buffer_of(graph, buffer).space) for buffer in buffers]


def _live(graph: Graph, copies: Iterable[tuple[int, int]]) -> Peaks:
    """Return the bytes per memory space of copies (buffer, space), persistent buffers at home left out."""
    totals = [0] * len(graph.spaces)
    for number, space in copies:
        buffer = buffer_of(graph, number)
        if buffer.lifetime != Lifetime.PERSISTENT or space != buffer.space:
            totals[space] += buffer.size_bytes
    return tuple(totals)


def _best_saving(graph: Graph, op: int, dying: Set[int], fresh: Set[int]) -> Peaks:
    """Try every subset of the offered pairs and return the most bytes saved, per memory space."""
    usable = [
        (buffer_of(graph, read), buffer_of(graph, written))
        for read, written in dict.fromkeys(op_of(graph, op).in_place)
        if read in dying and written in fresh
    ]
    usable = [(one, two) for one, two in usable if (one.size_bytes, one.space) == (two.size_bytes, two.space)]
    best = [0] * len(graph.spaces)
    for count in range(len(usable) + 1):
        for chosen in combinations(usable, count):
            if len({one.id for one, _ in chosen}) == count == len({two.id for _, two in chosen}):
                for space in range(len(best)):
                    best[space] = max(best[space], sum(two.size_bytes for _, two in chosen if two.space == space))
    return tuple(best)
