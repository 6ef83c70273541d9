"""The oracle of the event simulation: compares every step with every earlier one and keeps no state of copies."""

from dataclasses import dataclass

from lowtide.graph import Graph
from lowtide.plan import CopyIn, CopyOut, Free, Run, Step
from tests.oracles.records import buffer_of, op_of


@dataclass(frozen=True)
class Instants:
    """When the program reaches a step, when the step's work starts, and when it ends."""

    reached: float
    start: float
    end: float


def instants(graph: Graph, steps: list[Step]) -> list[Instants]:
    """Return the instants of every step, by the rules of the event simulation taken one pair of steps at a time."""
    result: list[Instants] = []
    for step in steps:
        earlier = list(zip(steps, result, strict=False))
        reached = max((_passed(other, when) for other, when in earlier), default=0.0)
        start = max([reached, *(when.end for other, when in earlier if _waits(graph, step, other))])
        result.append(Instants(reached, start, start + _seconds(graph, step)))
    return result


def route(graph: Graph, step: Step) -> tuple[int, int] | None:
    """Return the source and the destination space of a copy, None for other steps."""
    if isinstance(step, CopyOut):
        return buffer_of(graph, step.buffer).space, step.space
    if isinstance(step, CopyIn):
        return step.space, buffer_of(graph, step.buffer).space
    return None


def _passed(step: Step, when: Instants) -> float:
    """Return when the program goes on after a step."""
    return when.reached if isinstance(step, CopyIn | CopyOut) else when.end


def _waits(graph: Graph, step: Step, earlier: Step) -> bool:
    """Say whether a step's work must wait for the end of an earlier copy."""
    other = route(graph, earlier)
    if other is None:
        return False
    assert isinstance(earlier, CopyIn | CopyOut)
    if isinstance(step, Run):
        op = op_of(graph, step.op)
        overwrites = {*op.writes, *op.mutates, *(read for read, _ in step.pairs)}
        return earlier.buffer in overwrites or (isinstance(earlier, CopyIn) and earlier.buffer in op.reads)
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
