"""The oracle of the event simulation: compares every step with every earlier one and keeps no state of streams."""

from dataclasses import dataclass

from lowtide.engine.graph import Graph
from lowtide.engine.plan import CopyIn, CopyOut, Free, Run, Step
from lowtide.engine.timeline import Timeline
from tests.oracles.records import buffer_of, op_of


@dataclass(frozen=True)
class Instants:
    """When the program reaches a step, when the step's work starts, and when it ends."""

    reached: float
    start: float
    end: float


def instants(graph: Graph, steps: list[Step], *, collectives_apart: bool = False) -> list[Instants]:
    """Return the instants of every step, by the rules of the event simulation taken one pair of steps at a time."""
    result: list[Instants] = []

    def is_apart(step: Step) -> bool:
        return collectives_apart and isinstance(step, Run) and op_of(graph, step.op).ranks > 1

    for step in steps:
        earlier = list(zip(steps, result, strict=False))
        goes_on = [is_apart(other) or isinstance(other, CopyIn | CopyOut) for other, _ in earlier]
        passed = (when.reached if on else when.end for on, (_, when) in zip(goes_on, earlier, strict=True))
        reached = max(passed, default=0.0)
        held = (
            _is_held(graph, step, other, in_turn=is_apart(step)) if is_apart(other) else _waits(graph, step, other)
            for other, _ in earlier
        )
        start = max([reached, *(when.end for wait, (_, when) in zip(held, earlier, strict=True) if wait)])
        result.append(Instants(reached, start, start + _seconds(graph, step)))
    return result


def route(graph: Graph, step: Step) -> tuple[int, int] | None:
    """Return the source and the destination space of a copy, None for other steps."""
    if isinstance(step, CopyOut):
        return buffer_of(graph, step.buffer).space, step.space
    if isinstance(step, CopyIn):
        return step.space, buffer_of(graph, step.buffer).space
    return None


def _is_held(graph: Graph, step: Step, earlier: Step, *, in_turn: bool) -> bool:
    """Say whether a step's work must wait for the end of an earlier collective on a stream of its own."""
    assert isinstance(earlier, Run)
    op = op_of(graph, earlier.op)
    wrote, touched = _overwrites(graph, earlier), {*op.reads, *op.mutates, *op.writes}
    if isinstance(step, Run):
        mine = op_of(graph, step.op)
        return in_turn or bool(touched & _overwrites(graph, step) or wrote & {*mine.reads, *mine.mutates, *mine.writes})
    home = buffer_of(graph, step.buffer).space
    if isinstance(step, Free):
        return step.buffer in touched and step.space in (None, home)
    mine = route(graph, step)
    assert mine is not None
    return step.buffer in wrote and mine[0] == home


def _overwrites(graph: Graph, run: Run) -> set[int]:
    op = op_of(graph, run.op)
    return {*op.writes, *op.mutates, *(read for read, _ in run.pairs)}


def _waits(graph: Graph, step: Step, earlier: Step) -> bool:
    """Say whether a step's work must wait for the end of an earlier copy."""
    other = route(graph, earlier)
    if other is None:
        return False
    assert isinstance(earlier, CopyIn | CopyOut)
    if isinstance(step, Run):
        reads = op_of(graph, step.op).reads
        return earlier.buffer in _overwrites(graph, step) or (isinstance(earlier, CopyIn) and earlier.buffer in reads)
    home = buffer_of(graph, step.buffer).space
    if isinstance(step, Free):
        return earlier.buffer == step.buffer and (home if step.space is None else step.space) in other
    mine = route(graph, step)
    assert mine is not None
    return mine == other or (earlier.buffer == step.buffer and mine[0] == other[1])


def _seconds(graph: Graph, step: Step) -> float:
    if isinstance(step, Run):
        return op_of(graph, step.op).cost
    path = route(graph, step)
    if path is None:
        return 0.0
    assert isinstance(step, CopyIn | CopyOut)
    source, target = (graph.spaces[space] for space in path)
    return buffer_of(graph, step.buffer).size_bytes / source.bandwidth_bytes_per_s[target.name]


def busy_seconds(timeline: Timeline) -> dict[str, float]:
    """Return the busy time of every stream by name."""
    steps = list(zip(timeline.step_streams, timeline.durations.tolist(), strict=True))
    return {name: sum(took for here, took in steps if here == number) for number, name in enumerate(timeline.streams)}
