"""Fusion within the budget: do not fuse kernels that would keep too much alive together."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, OpId, Place
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.graph.rows import Rows
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks
from lowtide.frameworks.torch.compile.fusion.kernel_graph import graph_of_kernels
from lowtide.frameworks.torch.internals.inductor import CustomSchedulerPass
from lowtide.frameworks.torch.internals.kernel_storage import drop_ordering_users, loops_over_reduction, n_reductions
from lowtide.frameworks.torch.internals.kernels import (
    KernelNode,
    becomes_cpp,
    choices,
    input_names,
    scheduler,
    set_choices,
)
from lowtide.frameworks.torch.planning.options import Options, identity

MOST_REDUCTIONS = 4
"""Most reductions in a fused GPU kernel.

Inductor would fuse the norms of all recomputed layers. A kernel with 30 norms took 5.6 ms on an H200, which moves as
many bytes in 0.4 ms.
"""
_Interval = tuple[Place, Place] | None


@dataclass(frozen=True)
class _Fusion:
    place: Place
    intervals: dict[BufferId, _Interval]
    start: Place
    live: NDArray[np.int64]


class FusionTimeline:
    """Bytes alive at each op while pairs of ops are fused.

    If other ops would have to move, all buffers of two fused groups count as alive in between. Values computed in a
    loop (`loops`: reductions) are lost at its end unless stored.
    """

    def __init__(self, graph: Graph, capacity: int, loops: Collection[OpId] = ()) -> None:
        self._graph = graph
        self._loops = frozenset(loops)
        self._capacity = capacity
        self._members = [[op] for op in range(graph.n_ops)]
        self._touched = [self._touched_by(op) for op in range(graph.n_ops)]
        self._place = list(range(graph.n_ops))
        self._sizes: list[int] = graph.sizes.tolist()
        self._intervals = [self._interval(buffer, {}, {}) for buffer in range(graph.n_buffers)]
        self._live = graph.scratch.astype(np.int64)
        for buffer, interval in enumerate(self._intervals):
            _add(self._live, 0, interval, self._sizes[buffer])

    @property
    def peak_bytes(self) -> int:
        return int(self._live.max(initial=0))

    def fits(self, ops: Iterable[OpId], others: Iterable[OpId]) -> bool:
        """Return whether two sets of ops can be fused within the capacity, or the current need."""
        first, second = self._group(ops), self._group(others)
        if first == second or self._surely_fits(first, second):
            return True
        fusion = self._fusion(first, second)
        before = self._live[fusion.start : fusion.start + len(fusion.live)]
        return int(fusion.live.max(initial=0)) <= max(self._capacity, int(before.max(initial=0)))

    def _surely_fits(self, first: Place, second: Place) -> bool:
        between = self._live[min(first, second) : max(first, second) + 1]
        left = self._capacity - int(between.max(initial=0))
        return left >= 0 and sum(self._sizes[buffer] for buffer in self._touched[first] | self._touched[second]) <= left

    def fuse(self, ops: Iterable[OpId]) -> None:
        self._group(ops)

    def _group(self, ops: Iterable[OpId]) -> Place:
        places = sorted({self._place[op] for op in ops})
        group = places[0]
        for place in places[1:]:
            group = self._apply(group, place)
        return group

    def _apply(self, first: Place, second: Place) -> Place:
        fusion = self._fusion(first, second)
        self._live[fusion.start : fusion.start + len(fusion.live)] = fusion.live
        for buffer, interval in fusion.intervals.items():
            self._intervals[buffer] = interval
        joined = self._members[first] + self._members[second]
        touched = self._touched[first] | self._touched[second]
        self._members[first] = self._members[second] = []
        self._touched[first] = self._touched[second] = frozenset()
        self._touched[fusion.place] = touched
        self._members[fusion.place] = joined
        for op in joined:
            self._place[op] = fusion.place
        return fusion.place

    def _fusion(self, first: Place, second: Place) -> _Fusion:
        first, second = min(first, second), max(first, second)
        both = self._members[first] + self._members[second]
        touched = sorted(self._touched[first] | self._touched[second])
        structure = self._graph.structure
        users = self._others(structure.successors, first, second)
        needed = self._others(structure.predecessors, second, first)
        possible = [self._at(second, both, touched)] if all(place > second for place in users) else []
        if all(place < first for place in needed):
            possible.append(self._at(first, both, touched))
        if possible:
            return min(possible, key=lambda fusion: int(fusion.live.max(initial=0)))
        live = self._live[first : second + 1] + int(self._graph.sizes[touched].sum())
        return _Fusion(second, {}, first, live)

    def _others(self, neighbors: Rows, group: Place, partner: Place) -> set[Place]:
        found = {self._place[int(op)] for member in self._members[group] for op in neighbors[member]}
        return found - {group, partner}

    def _at(self, place: Place, both: list[OpId], touched: list[BufferId]) -> _Fusion:
        moved = dict.fromkeys(both, place)
        levels = self._levels(both)
        intervals = {buffer: self._interval(buffer, moved, levels) for buffer in touched}
        changed = {buffer: now for buffer, now in intervals.items() if now != self._intervals[buffer]}
        ends = [end for buffer in changed for end in (*(changed[buffer] or ()), *(self._intervals[buffer] or ()))]
        start, stop = (min(ends), max(ends) + 1) if ends else (place, place + 1)
        live = self._live[start:stop].copy()
        for buffer, interval in changed.items():
            size = self._sizes[buffer]
            _add(live, start, self._intervals[buffer], -size)
            _add(live, start, interval, size)
        return _Fusion(place, changed, start, live)

    def _touched_by(self, op: OpId) -> frozenset[BufferId]:
        structure = self._graph.structure
        return frozenset(buffer for rows in (structure.allocates, structure.touches) for buffer in rows[op].tolist())

    def _levels(self, both: list[OpId]) -> dict[OpId, int]:
        """Return how many loops end before each op of a group."""
        if self._loops.isdisjoint(both):
            return {}
        levels: dict[OpId, int] = {}
        for op in sorted(both):  # program order is valid within the group
            before = [each for each in self._graph.structure.predecessors[op].tolist() if each in levels]
            levels[op] = max((levels[each] + (each in self._loops) for each in before), default=0)
        return levels

    def _interval(self, buffer: BufferId, moved: dict[OpId, Place], levels: dict[OpId, int]) -> _Interval:
        """Return a buffer's live range after ops move; None if it is used in its group only, before another loop."""
        graph = self._graph
        producer, users = int(graph.structure.producers[buffer]), graph.structure.users[buffer].tolist()
        only_here = producer in moved and all(op in moved for op in users)
        if only_here and graph.lifetimes[buffer] == Lifetime.INTERMEDIATE:
            level = levels.get(producer, 0)
            if producer in self._loops or all(levels.get(op, 0) <= level for op in users):
                return None
        places = [moved.get(op, self._place[op]) for op in (producer, *users) if op >= 0]
        start = 0 if producer < 0 else moved.get(producer, self._place[producer])
        return start, max(places, default=start) if graph.freeable[buffer] else graph.n_ops - 1


def _add(live: NDArray[np.int64], start: Place, interval: _Interval, size: int) -> None:
    if interval is not None:
        live[max(interval[0] - start, 0) : interval[1] + 1 - start] += size


class FusionGuard(CustomSchedulerPass):
    """A pass before fusion. With a budget, Inductor then asks it about each pair of kernels."""

    def __init__(self, options: Options, peaks: FusedPeaks) -> None:
        self._options = options
        self._peaks = peaks

    def __call__(self, nodes: list[KernelNode]) -> list[KernelNode]:
        drop_ordering_users()
        capacity = self._peaks.kernel_budget(input_names())
        outer = choices()
        if isinstance(outer, _Choices):
            outer = outer.outer
        if capacity is None:
            set_choices(outer)
            return nodes
        given = self._peaks.known_inputs(input_names())
        graph = graph_of_kernels(nodes, given)
        timeline = FusionTimeline(graph, capacity, _loops(nodes))
        ordered = nodes
        if timeline.peak_bytes > capacity:
            allowed = self._options.techniques & {"reorder"}
            settings = PlanSettings(techniques=allowed, effort=self._options.effort, addresses=False)
            order = find_plan(graph, settings).plan.order()
            ordered = [nodes[place] for place in order.tolist()]
            timeline = FusionTimeline(graph_of_kernels(ordered, given), capacity, _loops(ordered))
        set_choices(_Choices(outer, scheduler(), ordered, timeline))
        return nodes

    def uuid(self) -> str:
        return f"{identity(self._options)} {self._peaks.identity}"


def _loops(nodes: Sequence[KernelNode]) -> set[OpId]:
    return {op for op, node in enumerate(nodes) if loops_over_reduction(node)}


def _has_too_many_reductions(node1: KernelNode, node2: KernelNode) -> bool:
    counts = n_reductions(node1), n_reductions(node2)
    return all(counts) and sum(counts) > MOST_REDUCTIONS and not becomes_cpp(node1)


class _Choices:
    def __init__(self, outer: Any, scheduler: Any, nodes: Sequence[KernelNode], timeline: FusionTimeline) -> None:
        self.outer = outer
        self._scheduler = scheduler
        self._timeline = timeline
        self._op = {name: op for op, node in enumerate(nodes) for name in node.get_operation_names()}
        self._allowed: tuple[KernelNode, KernelNode] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.outer, name)

    def can_fuse(self, scheduler: Any, node1: KernelNode, node2: KernelNode, shared_data_score: int) -> bool:
        if not self.outer.can_fuse(scheduler, node1, node2, shared_data_score):
            return False
        if scheduler is not self._scheduler:
            return True
        if _has_too_many_reductions(node1, node2):
            return False
        self._note_fusion()
        allowed = self._timeline.fits(self._ops(node1), self._ops(node2))
        self._allowed = (node1, node2) if allowed else None
        return allowed

    def _note_fusion(self) -> None:
        if self._allowed is not None:
            names = [node.get_first_name() for node in self._allowed]
            one, other = (self._scheduler.name_to_fused_node[name] for name in names)
            if one is other:
                self._timeline.fuse(self._ops(one))

    def _ops(self, node: KernelNode) -> list[OpId]:
        return [self._op[name] for name in node.get_operation_names()]
