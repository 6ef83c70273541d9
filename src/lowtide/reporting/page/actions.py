"""Changes that a plan makes to the unmodified program."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, StepKind
from lowtide.engine.recompute.unrolled import first_runs
from lowtide.engine.search import moved_ops
from lowtide.engine.timeline import Transfers, play_timeline, transfers_of

_MOST_BARS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """A recomputed op."""

    op: str
    times: int
    writes_bytes: int
    cost: float
    """In the unit of the ops' costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """An in-place pair: one buffer takes over the storage of another."""

    op: str
    read: str
    written: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A buffer that is copied to another memory space."""

    buffer: str
    to: str
    size_bytes: int
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One op or copy on a stream; seconds from the plan's start."""

    stream: str
    start: float
    seconds: float
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """Changes by kind, most bytes first."""

    moved: tuple[str, ...]
    """In program order."""
    shared: tuple[Shared, ...]
    reruns: tuple[Rerun, ...]
    copied: tuple[Copied, ...]
    transfers: Transfers
    base_cost: float

    @property
    def extra_cost(self) -> float:
        return sum(rerun.cost for rerun in self.reruns) + self.transfers.stall_seconds


def actions_of(graph: Graph, plan: Plan, prices: Prices) -> Actions:
    """Return a plan's changes to a graph. O(steps + n log n)."""
    order = plan.order().tolist()
    runs = np.bincount(np.asarray(order, np.int64), minlength=graph.n_ops)
    moved = moved_ops(first_runs(order), np.arange(graph.n_ops, dtype=np.int32)) if order else []
    shared = [
        Shared(
            op=graph.op_names[op],
            read=graph.buffer_names[read],
            written=graph.buffer_names[written],
            size_bytes=int(graph.sizes[written]),
        )
        for _, op, pairs in plan.taken_pairs()
        for read, written in pairs
    ]
    reruns = [
        Rerun(
            op=graph.op_names[op],
            times=int(runs[op]) - 1,
            writes_bytes=int(graph.sizes[graph.writes[op]].sum()),
            cost=float(prices.seconds[op]) * (int(runs[op]) - 1),
        )
        for op in np.flatnonzero((runs > 1) & ~graph.off_device).tolist()
    ]
    return Actions(
        moved=tuple(graph.op_names[op] for op in moved),
        shared=tuple(sorted(shared, key=lambda row: -row.size_bytes)),
        reruns=tuple(sorted(reruns, key=lambda row: -row.writes_bytes)),
        copied=_copied(graph, plan),
        transfers=transfers_of(graph, plan, prices),
        base_cost=float(prices.seconds.sum()),
    )


def _copied(graph: Graph, plan: Plan) -> tuple[Copied, ...]:
    out = plan.kinds == StepKind.COPY_OUT
    times: Counter[tuple[int, int]] = Counter(zip(plan.targets[out].tolist(), plan.spaces[out].tolist(), strict=True))
    rows = [
        Copied(
            buffer=graph.buffer_names[buffer],
            to=graph.spaces[space].name,
            size_bytes=int(graph.sizes[buffer]),
            times=count,
        )
        for (buffer, space), count in times.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.size_bytes))


def stream_bars(graph: Graph, plan: Plan, prices: Prices) -> tuple[list[Bar], int]:
    """Return the longest bars of all streams and the number left out; none for only one stream."""
    is_copy = (plan.kinds == StepKind.COPY_OUT) | (plan.kinds == StepKind.COPY_IN)
    if not is_copy.any() and not (graph.ranks > 1).any():
        return [], 0
    timeline = play_timeline(graph, plan, prices, collectives_apart=True)
    busy = np.flatnonzero((timeline.step_streams >= 0) & (timeline.durations > 0))
    longest = np.sort(busy[np.argsort(-timeline.durations[busy], kind="stable")[:_MOST_BARS]])
    bars = [
        Bar(
            stream=timeline.streams[int(timeline.step_streams[step])],
            start=float(timeline.starts[step]),
            seconds=float(timeline.durations[step]),
            what=(graph.op_names if plan.kinds[step] == StepKind.RUN else graph.buffer_names)[int(plan.targets[step])],
        )
        for step in longest.tolist()
    ]
    return bars, len(busy) - len(longest)
