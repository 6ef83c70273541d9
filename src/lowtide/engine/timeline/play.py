"""The event simulation: plays a plan on streams and records when every step happens."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import GraphError
from lowtide.core.index_spaces import BufferId, OpId, SpaceId, StepIndex
from lowtide.engine.costs import Prices, given_prices
from lowtide.engine.graph import Graph
from lowtide.engine.plan import HOME, Plan, StepKind
from lowtide.engine.timeline.timeline import COLLECTIVES, COMPUTE, NO_STREAM, Timeline

_Copy = tuple[BufferId, SpaceId]
"""A buffer and the memory space that holds a copy of it."""
_Extra = dict[tuple[int, int], float]
"""Seconds that plans of callees add, by the identity of their graph and plan."""


def play_timeline(
    graph: Graph, plan: Plan, prices: Prices | None = None, *, collectives_apart: bool = False
) -> Timeline:
    """Play a plan and record when every step starts and ends. O(steps + e).

    Ops run one after the other on one stream. Copies between two memory spaces have a stream per direction, and
    `collectives_apart` one for all; on it they run one after the other. The program issues steps in plan order, and
    goes on at once after it issues something for another stream. That starts when it is issued, its stream is free and
    its source is complete. A run waits for what writes what it touches, and for what reads what it overwrites or takes
    over. A free waits for all that reads or writes what it frees. So memory over time is what the order of the steps
    says: an offloaded buffer stays until its copy is done, a prefetched or gathered one is live from the start of that.

    What plans cost, and bounds of that, are of collectives on the stream of all ops, as if nothing ran meanwhile.

    An op takes what `prices` say (by default the graph's own costs), plus what a plan for its callees adds to them.
    Copies take bytes / `bandwidth_bytes_per_s` of the source space. Raises GraphError where that is missing. The plan
    is trusted: check it with `verify`.
    """
    return _play(graph, plan, prices or given_prices(graph), {}, collectives_apart)


def _play(graph: Graph, plan: Plan, prices: Prices, known: _Extra, apart: bool) -> Timeline:
    is_apart = graph.ranks > 1 if apart else np.zeros(graph.n_ops, np.bool_)
    player = _Player(graph, plan.n_steps, _run_seconds(graph, plan, prices, known), is_apart)
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
    """The clocks of all streams and what is still being copied or sent, after the steps so far."""

    def __init__(self, graph: Graph, n_steps: int, run_seconds: Sequence[float], is_apart: NDArray[np.bool_]) -> None:
        self._graph = graph
        self._is_apart: list[bool] = is_apart.tolist()
        self._sizes = graph.sizes.tolist()
        self._homes = graph.buffer_spaces.tolist()
        self._run_seconds = run_seconds
        self._now = 0.0  # when the program reaches the next step
        self._ready: dict[_Copy, float] = {}  # when a residency that is being written is complete
        self._in_use: dict[_Copy, float] = {}  # until when copies and collectives read or write a residency
        self._stream_of: dict[str, int] = {}
        self._free_at = [0.0]
        self.streams = ["compute"]
        self.step_streams = [NO_STREAM] * n_steps
        self.starts = [0.0] * n_steps
        self.durations = [0.0] * n_steps
        self.stalls = [0.0] * n_steps

    def run(self, step: StepIndex, op: OpId, touches: Sequence[BufferId], overwrites: Sequence[BufferId]) -> None:
        """Run an op once what it touches is there and nobody reads what it overwrites; what is apart on its stream."""
        start = self._now
        if self._in_use:
            for buffer in touches:
                start = max(start, self._ready.get((buffer, self._homes[buffer]), 0.0))
            for buffer in overwrites:
                start = max(start, self._in_use.pop((buffer, self._homes[buffer]), 0.0))
        if self._is_apart[op]:
            stream = self._stream(COLLECTIVES)
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
        """Return how long copies and collectives are still under way after the last step."""
        return self.seconds() - self._now

    def seconds(self) -> float:
        """Return when all is done."""
        return max(self._now, *self._free_at)

    def _copy(self, step: StepIndex, buffer: BufferId, source: SpaceId, target: SpaceId) -> None:
        stream = self._stream(f"{self._name(source)} -> {self._name(target)}")
        start = max(self._now, self._free_at[stream], self._ready.get((buffer, source), 0.0))
        end = self._occupy(step, stream, start, self._sizes[buffer] / self._bandwidth(source, target, step))
        self._ready[buffer, target] = self._in_use[buffer, target] = end
        self._in_use[buffer, source] = max(end, self._in_use.get((buffer, source), 0.0))

    def _occupy(self, step: StepIndex, stream: int, start: float, seconds: float) -> float:
        """Note that a step keeps a stream busy from a moment on; returns until when."""
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

    def _bandwidth(self, source: SpaceId, target: SpaceId, step: StepIndex) -> float:
        bandwidths = self._graph.spaces[source].bandwidth_bytes_per_s
        if self._name(target) not in bandwidths:
            raise GraphError(
                f"graph {self._graph.name!r}: memory space {self._name(source)!r} has no bandwidth_bytes_per_s to "
                f"{self._name(target)!r}, where step {step} copies a buffer; add it to the space"
            )
        return bandwidths[self._name(target)]

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
                    known[key] = _play(subgraph, callee, prices.of_callee(name, subgraph), known, False).extra_seconds
                seconds[op] += known[key]
    return seconds
