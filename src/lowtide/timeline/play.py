"""The event simulation: plays a plan on streams and records when every step happens."""

import math
from collections.abc import Sequence

import numpy as np

from lowtide.costs import Prices, given_prices
from lowtide.errors import GraphError
from lowtide.graph import Graph
from lowtide.index_spaces import BufferId, OpId, SpaceId, StepIndex
from lowtide.plan import HOME, Plan, StepKind
from lowtide.timeline.timeline import COMPUTE, NO_STREAM, Timeline

_Copy = tuple[BufferId, SpaceId]
"""A buffer and the memory space that holds a copy of it."""
_Extra = dict[tuple[int, int], float]
"""Seconds that plans of callees add, by the identity of their graph and plan."""


def play_timeline(graph: Graph, plan: Plan, prices: Prices | None = None) -> Timeline:
    """Play a plan and record when every step starts and ends. O(steps + e).

    Ops run one after the other on one stream. Copies between two memory spaces have a stream per direction, and run on
    it one after the other. The program issues steps in plan order, and goes on at once after it issues a copy. A copy
    starts when it is issued, its stream is free and its source is complete. A run waits for copies to what it touches,
    and for copies from what it overwrites or takes over. A free waits for every copy that reads or writes what it
    frees. So memory over time is what the order of the steps says: an offloaded buffer stays until its copy is done, a
    prefetched one is live from the start of its copy.

    An op takes what `prices` say (by default the graph's own costs), plus what a plan for its callees adds to them.
    Copies take bytes / `bandwidth_bytes_per_s` of the source space. Raises GraphError where that is missing. The plan
    is trusted: check it with `verify`.
    """
    return _play(graph, plan, prices or given_prices(graph), {})


def _play(graph: Graph, plan: Plan, prices: Prices, known: _Extra) -> Timeline:
    player = _Player(graph, plan, _run_seconds(graph, plan, prices, known))
    writes = _overwritten(graph)
    touches = list(graph.structure.touches)
    pairs = list(plan.pairs)
    kinds: list[int] = plan.kinds.tolist()
    targets: list[int] = plan.targets.tolist()
    spaces: list[int] = plan.spaces.tolist()
    for step, (kind, target, space) in enumerate(zip(kinds, targets, spaces, strict=True)):
        if kind == StepKind.RUN:
            player.run(step, target, touches[target], [*writes[target], *pairs[step][::2]])
        elif kind == StepKind.FREE:
            player.free(step, target, space)
        elif kind == StepKind.COPY_OUT:
            player.copy_out(step, target, space)
        else:
            player.copy_in(step, target, space)
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
    """The clocks of all streams and what is still being copied, after the steps so far."""

    def __init__(self, graph: Graph, plan: Plan, run_seconds: Sequence[float]) -> None:
        self._graph = graph
        self._sizes = graph.sizes.tolist()
        self._homes = graph.buffer_spaces.tolist()
        self._run_seconds = run_seconds
        self._now = 0.0  # when the program reaches the next step
        self._ready: dict[_Copy, float] = {}  # when a copy that is being written is complete
        self._in_use: dict[_Copy, float] = {}  # until when copies read or write a residency
        self._stream_of: dict[tuple[SpaceId, SpaceId], int] = {}
        self._free_at = [0.0]
        self.streams = ["compute"]
        self.step_streams = [NO_STREAM] * plan.n_steps
        self.starts = [0.0] * plan.n_steps
        self.durations = [0.0] * plan.n_steps
        self.stalls = [0.0] * plan.n_steps

    def run(self, step: StepIndex, op: OpId, touches: Sequence[BufferId], overwrites: Sequence[BufferId]) -> None:
        """Run an op once what it touches is there and nobody copies what it overwrites."""
        start = self._now
        if self._in_use:
            for buffer in touches:
                start = max(start, self._ready.get((buffer, self._homes[buffer]), 0.0))
            for buffer in overwrites:
                start = max(start, self._in_use.pop((buffer, self._homes[buffer]), 0.0))
        self.step_streams[step] = COMPUTE
        self.starts[step] = start
        self.durations[step] = self._run_seconds[op]
        self.stalls[step] = start - self._now
        self._now = self._free_at[COMPUTE] = start + self._run_seconds[op]

    def free(self, step: StepIndex, buffer: BufferId, space: SpaceId) -> None:
        """Wait until nothing is copied to or from what is freed."""
        copy = (buffer, self._homes[buffer] if space == HOME else space)
        until = max(self._now, self._in_use.pop(copy, 0.0))
        self.starts[step] = until
        self.stalls[step] = until - self._now
        self._now = until

    def copy_out(self, step: StepIndex, buffer: BufferId, space: SpaceId) -> None:
        """Start a copy from the home space as soon as its source is complete and its stream is free."""
        self._copy(step, buffer, self._homes[buffer], space)

    def copy_in(self, step: StepIndex, buffer: BufferId, space: SpaceId) -> None:
        """Start a copy to the home space as soon as its source is complete and its stream is free."""
        self._copy(step, buffer, space, self._homes[buffer])

    def final_stall(self) -> float:
        """Return how long copies are still under way after the last step."""
        return max(self._now, *self._free_at) - self._now

    def _copy(self, step: StepIndex, buffer: BufferId, source: SpaceId, target: SpaceId) -> None:
        stream = self._stream(source, target, step)
        start = max(self._now, self._free_at[stream], self._ready.get((buffer, source), 0.0))
        seconds = self._sizes[buffer] / self._graph.spaces[source].bandwidth_bytes_per_s[self._name(target)]
        end = start + seconds
        self.step_streams[step] = stream
        self.starts[step] = start
        self.durations[step] = seconds
        self._free_at[stream] = self._ready[buffer, target] = self._in_use[buffer, target] = end
        self._in_use[buffer, source] = max(end, self._in_use.get((buffer, source), 0.0))

    def _stream(self, source: SpaceId, target: SpaceId, step: StepIndex) -> int:
        stream = self._stream_of.get((source, target))
        if stream is None:
            if self._name(target) not in self._graph.spaces[source].bandwidth_bytes_per_s:
                raise GraphError(
                    f"graph {self._graph.name!r}: memory space {self._name(source)!r} has no bandwidth_bytes_per_s to "
                    f"{self._name(target)!r}, where step {step} copies a buffer; add it to the space"
                )
            stream = self._stream_of[source, target] = len(self.streams)
            self.streams.append(f"{self._name(source)} -> {self._name(target)}")
            self._free_at.append(0.0)
        return stream

    def _name(self, space: SpaceId) -> str:
        return self._graph.spaces[space].name


def _overwritten(graph: Graph) -> list[list[BufferId]]:
    """Per op, the buffers it writes or mutates, freshly allocated ones included: a rerun replaces an old copy."""
    return [mutates + writes for mutates, writes in zip(graph.mutates, graph.writes, strict=True)]


def _run_seconds(graph: Graph, plan: Plan, prices: Prices, known: _Extra) -> list[float]:
    """Per op, its price plus what the plans of its callees take beyond the callees' programs."""
    seconds: list[float] = prices.seconds.tolist()
    for op, names in enumerate(graph.callees):
        for name in names:
            if name in plan.callees:
                subgraph, callee = graph.subgraphs[name], plan.callees[name]
                key = (id(subgraph), id(callee))  # both stay alive through graph and plan
                if key not in known:
                    known[key] = _play(subgraph, callee, prices.of_callee(name, subgraph), known).extra_seconds
                seconds[op] += known[key]
    return seconds
