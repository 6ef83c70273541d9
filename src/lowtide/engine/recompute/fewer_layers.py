"""A program with most of its equal layers left out."""

from dataclasses import dataclass
from statistics import mode

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph import Graph, GraphBuilder, Op
from lowtide.engine.recompute.repeats import Stretch, long_stretches, op_classes

_LEAST_SHARE = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class FewerLayers:
    """A program with fewer layers."""

    problem: Problem
    ops: NDArray[np.int32]
    """Per op, that of the whole program."""
    layers: int
    all_layers: int

    def order(self, order: Order) -> Order:
        position = np.full(int(order.max()) + 1, -1, np.int32)
        position[self.ops] = np.arange(len(self.ops), dtype=np.int32)
        found = position[order]
        return found[found >= 0]

    def budget(self, whole: Problem, budget: int) -> int | None:
        """Return the budget that leaves each layer as much memory as in the whole program, None if none.

        Assumes that memory grows by the same bytes per layer.
        """
        peaks = [int(problem.evaluate(problem.given_order()).peaks[0]) for problem in (whole, self.problem)]
        per_layer = (peaks[0] - peaks[1]) / (self.all_layers - self.layers)
        fixed = peaks[0] - per_layer * self.all_layers
        room = (budget - fixed) * self.layers / self.all_layers
        return int(fixed + room) if room > 0 else None


def with_fewer_layers(problem: Problem, layers: int) -> FewerLayers | None:
    """Return the program with fewer equal layers, or None if none can be left out.

    Layers are repeating stretches of the forward pass, the backward pass and the updates, matched by the buffers that
    they read. Readers of left-out results read those of the nearest layer left. O(ops * periods).
    """
    graph = problem.graph
    stretches = _layer_stretches(graph)
    if not stretches or stretches[0].periods <= layers:
        return None
    removal = _Removal(graph, stretches, layers)
    if not removal.is_possible():
        return None
    ops = removal.ops()
    if ops is None:
        return None
    smaller, kept = ops
    inner = Problem(smaller, problem.callees, problem.in_place, problem.callee_peaks)
    return FewerLayers(inner, np.asarray(kept, np.int32), layers, stretches[0].periods)


def _layer_stretches(graph: Graph) -> list[Stretch]:
    classes = op_classes(graph, range(graph.n_ops))
    found = sorted(long_stretches(classes, max(1, int(_LEAST_SHARE * graph.n_ops))), key=lambda stretch: stretch.first)
    if not found:
        return []
    layers = found[0].periods
    joined = [Stretch(each.first, each.end, each.period * max(1, round(each.periods / layers))) for each in found]
    return [each for each in joined if abs(each.periods - layers) <= 1]


class _Removal:
    def __init__(self, graph: Graph, stretches: list[Stretch], layers: int) -> None:
        self.graph = graph
        self.touches: list[list[BufferId]] = list(graph.structure.touches)
        self.allocates: list[list[BufferId]] = list(graph.structure.allocates)
        self.n_removed = stretches[0].periods - layers
        first_removed = layers // 2
        self.removed = range(first_removed, first_removed + self.n_removed)
        self.stretches = stretches
        self.first_gone: list[int] = []
        self.layer_of: list[int] = [-1] * graph.n_buffers
        self.made_by: list[OpId] = [-1] * graph.n_buffers
        self.is_gone = [False] * graph.n_ops

    def is_possible(self) -> bool:
        at = 0
        for number, stretch in enumerate(self.stretches):
            self._mark_single(range(at, stretch.first))
            layers = [self._layer(stretch, period, number) for period in range(stretch.periods)]
            gone = [period for period, layer in enumerate(layers) if layer in self.removed]
            if not gone or len(gone) != self.n_removed or gone[-1] - gone[0] >= self.n_removed:
                return False
            self.first_gone.append(gone[0])
            at = stretch.first + stretch.periods * stretch.period
        self._mark_single(range(at, self.graph.n_ops))
        return True

    def _layer(self, stretch: Stretch, period: int, number: int) -> int:
        start = stretch.first + period * stretch.period
        ops = range(start, start + stretch.period)
        layer = period
        if number:
            used = [self.layer_of[buffer] for op in ops for buffer in self.touches[op]]
            layer = mode([each for each in used if each >= 0] or [-1])
        for op in ops:
            self._mark(op, layer)
            if number == 0:
                for buffer in self.touches[op]:
                    if self.graph.exists_at_start[buffer]:
                        self.layer_of[buffer] = layer
        return layer

    def _mark_single(self, ops: range) -> None:
        for op in ops:
            used = {self.layer_of[buffer] for buffer in self.touches[op]} - {-1}
            is_removed = bool(used) and all(layer in self.removed for layer in used)
            self._mark(op, min(used) if is_removed else -1)

    def _mark(self, op: OpId, layer: int) -> None:
        self.is_gone[op] = layer in self.removed
        for buffer in self.allocates[op]:
            self.layer_of[buffer], self.made_by[buffer] = layer, op

    def ops(self) -> tuple[Graph, list[OpId]] | None:
        """Return the remaining graph and its ops, or None if one lacks an operand."""
        graph, kept = self.graph, [op for op, gone in enumerate(self.is_gone) if not gone]
        position = {op: place for place, op in enumerate(kept)}
        in_layers = {op for stretch in self.stretches for op in range(stretch.first, stretch.end)}
        records: list[Op] = []
        for op, record in enumerate(graph.ops()):
            if self.is_gone[op]:
                continue
            found = {buffer: self._nearest(buffer, op) for buffer in (*self.touches[op], *self.allocates[op])}
            if op in in_layers and None in found.values():
                return None
            pairs = ((found[read], found[written]) for read, written in record.in_place)
            records.append(
                replace(
                    record,
                    reads=_known(found, record.reads),
                    writes=_known(found, record.writes),
                    mutates=_known(found, record.mutates),
                    in_place=tuple(
                        (read, written) for read, written in pairs if read is not None and written is not None
                    ),
                    after=tuple(position[earlier] for earlier in record.after if earlier in position),
                )
            )
        return self._built(records), kept

    def _nearest(self, buffer: BufferId, user: OpId) -> BufferId | None:
        maker = self.made_by[buffer]
        if maker < 0 or not self.is_gone[maker]:
            return buffer
        for stretch, first_gone in zip(self.stretches, self.first_gone, strict=True):
            if stretch.first <= maker < stretch.end:
                period = (maker - stretch.first) // stretch.period
                is_first_half = 2 * (period - first_gone) < self.n_removed
                shift = (self.n_removed if is_first_half else -self.n_removed) * stretch.period
                other = maker + shift
                if not stretch.first <= other < user or self.is_gone[other]:
                    return None
                slot = self.allocates[maker].index(buffer)
                return self.allocates[other][slot] if slot < len(self.allocates[other]) else None
        return None

    def _built(self, records: list[Op]) -> Graph:
        graph = self.graph
        builder = GraphBuilder(graph.name)
        builder.copy_spaces(graph)
        used = sorted({buffer for record in records for buffer in (*record.reads, *record.writes, *record.mutates)})
        builder.add_buffers(
            [graph.buffer_names[buffer] for buffer in used],
            graph.sizes[used].tolist(),
            graph.lifetimes[used].tolist(),
            graph.buffer_spaces[used].tolist(),
        )
        number = {buffer: place for place, buffer in enumerate(used)}
        for record in records:
            for name in record.callees:
                builder.add_subgraph(name, graph.subgraphs[name])
            builder.add(
                replace(
                    record,
                    reads=tuple(number[buffer] for buffer in record.reads),
                    writes=tuple(number[buffer] for buffer in record.writes),
                    mutates=tuple(number[buffer] for buffer in record.mutates),
                    in_place=tuple((number[read], number[written]) for read, written in record.in_place),
                )
            )
        return builder.build()


def _known(found: dict[BufferId, BufferId | None], buffers: tuple[BufferId, ...]) -> tuple[BufferId, ...]:
    return tuple(buffer for each in buffers if (buffer := found[each]) is not None)
