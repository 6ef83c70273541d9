"""Event simulation of a plan on streams."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.core.index_spaces import BufferId, OpId, SpaceId, StepIndex
from lowtide.engine.costs import Prices, given_prices
from lowtide.engine.graph import Graph
from lowtide.engine.plan import HOME, Plan, StepKind
from lowtide.engine.timeline.off_device_ops import off_device_ops, speed_between, stream_name
from lowtide.engine.timeline.timeline import COLLECTIVES, COMPUTE, NO_STREAM, Timeline

_Copy = tuple[BufferId, SpaceId]
_Extra = dict[tuple[int, int], float]


def play_timeline(
    graph: Graph, plan: Plan, prices: Prices | None = None, *, collectives_apart: bool = False
) -> Timeline:
    """Return when every step of a valid plan starts and ends. O(steps + e).

    Only ops on the compute stream block. Each direction of copies, by the plan or by ops, has a stream. So have updates
    on the host, and collectives if `collectives_apart`. A run waits for writes of the buffers it touches and for reads
    of the buffers it overwrites, a free for both.

    An op takes its price (by default its cost) plus the extra time of its callees, a copy bytes /
    `bandwidth_bytes_per_s`; raises GraphError if that is missing.
    """
    return _play(graph, plan, prices or given_prices(graph), {}, collectives_apart)


def _play(graph: Graph, plan: Plan, prices: Prices, known: _Extra, apart: bool) -> Timeline:
    run_seconds = _run_seconds(graph, plan, prices, known)
    off_device = off_device_ops(graph)
    for op, each in off_device.items():
        run_seconds[op] = each.seconds
    apart_on = dict.fromkeys(np.flatnonzero(graph.ranks > 1).tolist() if apart else (), COLLECTIVES)
    apart_on.update((op, each.stream) for op, each in off_device.items())
    player = _Player(graph, plan.n_steps, run_seconds, apart_on)
    writes = _overwritten(graph)
    touches = list(graph.structure.touches)
    pairs = list(plan.pairs)
    homes: list[int] = graph.buffer_spaces.tolist()
    kinds: list[int] = plan.kinds.tolist()
    targets: list[int] = plan.targets.tolist()
    spaces: list[int] = plan.spaces.tolist()
    for step, (kind, target, space) in enumerate(zip(kinds, targets, spaces, strict=True)):
        if kind == StepKind.RUN:
            player.run(step, target, touches[target], [*writes[target], *pairs[step][::2]])
        elif kind == StepKind.FREE:
            player.free(step, target, space)
        elif kind == StepKind.COPY_OUT:
            player.copy(step, target, homes[target], space)
        else:
            player.copy(step, target, space, homes[target])
    return Timeline(
        profile=prices.profile,
        streams=tuple(player.streams),
        step_streams=np.asarray(player.step_streams, np.int8),
        starts=np.asarray(player.starts, np.float64),
        durations=np.asarray(player.durations, np.float64),
        stalls=np.asarray(player.stalls, np.float64),
        final_stall=player.final_stall(),
        base_seconds=math.fsum(prices.seconds.tolist()),
    )


class _Player:
    def __init__(self, graph: Graph, n_steps: int, run_seconds: Sequence[float], apart_on: Mapping[OpId, str]) -> None:
        self._graph = graph
        self._apart_on = apart_on
        self._sizes = graph.sizes.tolist()
        self._homes = graph.buffer_spaces.tolist()
        self._run_seconds = run_seconds
        self._now = 0.0  # time of the next step
        self._ready: dict[_Copy, float] = {}  # end of pending writes
        self._in_use: dict[_Copy, float] = {}  # end of pending reads and writes
        self._stream_of: dict[str, int] = {}
        self._free_at = [0.0]
        self.streams = ["compute"]
        self.step_streams = [NO_STREAM] * n_steps
        self.starts = [0.0] * n_steps
        self.durations = [0.0] * n_steps
        self.stalls = [0.0] * n_steps

    def run(self, step: StepIndex, op: OpId, touches: Sequence[BufferId], overwrites: Sequence[BufferId]) -> None:
        start = self._now
        if self._in_use:
            for buffer in touches:
                start = max(start, self._ready.get((buffer, self._homes[buffer]), 0.0))
            for buffer in overwrites:
                start = max(start, self._in_use.pop((buffer, self._homes[buffer]), 0.0))
        if op in self._apart_on:
            stream = self._stream(self._apart_on[op])
            end = self._occupy(step, stream, max(start, self._free_at[stream]), self._run_seconds[op])
            for buffer in (*touches, *overwrites):
                copy = (buffer, self._homes[buffer])
                self._in_use[copy] = max(end, self._in_use.get(copy, 0.0))
            for buffer in overwrites:
                self._ready[buffer, self._homes[buffer]] = end
            return
        self.step_streams[step] = COMPUTE
        self.starts[step] = start
        self.durations[step] = self._run_seconds[op]
        self.stalls[step] = start - self._now
        self._now = self._free_at[COMPUTE] = start + self._run_seconds[op]

    def free(self, step: StepIndex, buffer: BufferId, space: SpaceId) -> None:
        copy = (buffer, self._homes[buffer] if space == HOME else space)
        until = max(self._now, self._in_use.pop(copy, 0.0))
        self.starts[step] = until
        self.stalls[step] = until - self._now
        self._now = until

    def final_stall(self) -> float:
        return max(self._now, *self._free_at) - self._now

    def copy(self, step: StepIndex, buffer: BufferId, source: SpaceId, target: SpaceId) -> None:
        stream = self._stream(stream_name(self._graph, source, target))
        start = max(self._now, self._free_at[stream], self._ready.get((buffer, source), 0.0))
        end = self._occupy(
            step, stream, start, self._sizes[buffer] / speed_between(self._graph, source, target, f"step {step}")
        )
        # a collective may still use the memory at the target that it has handed over to its result
        self._ready[buffer, target] = max(end, self._ready.get((buffer, target), 0.0))
        for space in (source, target):
            self._in_use[buffer, space] = max(end, self._in_use.get((buffer, space), 0.0))

    def _occupy(self, step: StepIndex, stream: int, start: float, seconds: float) -> float:
        self.step_streams[step] = stream
        self.starts[step] = start
        self.durations[step] = seconds
        self._free_at[stream] = start + seconds
        return start + seconds

    def _stream(self, name: str) -> int:
        stream = self._stream_of.get(name)
        if stream is None:
            stream = self._stream_of[name] = len(self.streams)
            self.streams.append(name)
            self._free_at.append(0.0)
        return stream


def _overwritten(graph: Graph) -> list[list[BufferId]]:
    return [mutates + writes for mutates, writes in zip(graph.mutates, graph.writes, strict=True)]


def _run_seconds(graph: Graph, plan: Plan, prices: Prices, known: _Extra) -> list[float]:
    seconds: list[float] = prices.seconds.tolist()
    for op, names in enumerate(graph.callees):
        for name in names:
            if name in plan.callees:
                subgraph, callee = graph.subgraphs[name], plan.callees[name]
                key = (id(subgraph), id(callee))  # unique while both are alive
                if key not in known:
                    known[key] = _play(subgraph, callee, prices.of_callee(name, subgraph), known, False).extra_seconds
                seconds[op] += known[key]
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """Figures of a plan's copies."""

    bytes_out: int = 0
    """Bytes copied to other memory spaces."""
    state_bytes_out: int = 0
    """Bytes that copying ops of the program copy out of the first memory space, for state and updates on the host."""
    stall_seconds: float = 0.0
    """Time that compute waits for copies."""
    hidden_seconds: float = 0.0
    """Time of copies while compute is busy."""


def transfers_of(graph: Graph, plan: Plan, prices: Prices) -> Transfers:
    """Return the figures of all copies. O(steps)."""
    out = plan.kinds == StepKind.COPY_OUT
    off_device = off_device_ops(graph)
    if not (off_device or out.any() or (plan.kinds == StepKind.COPY_IN).any()):
        return Transfers()
    timeline = play_timeline(graph, plan, prices)
    return Transfers(
        bytes_out=int(graph.sizes[plan.targets[out]].sum()),
        state_bytes_out=sum(each.bytes_out for each in off_device.values()),
        stall_seconds=timeline.stall_seconds,
        hidden_seconds=timeline.hidden_seconds,
    )
