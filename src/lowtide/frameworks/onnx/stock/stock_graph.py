"""A graph as the stock runtime runs it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from onnx import GraphProto

from lowtide.frameworks.onnx.loading.rewrite import NodeOrder
from lowtide.frameworks.onnx.operators.nodes import operator_of
from lowtide.frameworks.onnx.operators.tables import CONSTANTS, FROM_BLOCKED
from lowtide.frameworks.onnx.reading.translation import Translation
from lowtide.frameworks.onnx.stock.arena import StockArena, pattern_bytes
from lowtide.frameworks.onnx.stock.default_order import default_order_among, default_order_of, order_of_ops
from lowtide.frameworks.onnx.stock.frames import StockFrame, has_frames
from lowtide.frameworks.onnx.stock.reuse import Allocations, StockRole

_RUNS = 3
"""Until memory stops growing: one without a pattern, two with."""
_CALLS = "functions and unknown operators, which count at their peak"
_ORDER = "the runtime's order at this level, which differs in every process"
_UNKNOWN = "values with data-dependent sizes, which count as 0 bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class StockBytes:
    """Memory of the same runs, with one more mechanism per figure."""

    order_bytes: int
    """Peak of live bytes, inputs included."""
    reuse_bytes: int
    """Peak with reuse of storage."""
    pattern_bytes: int
    """All values' block from the second run on."""
    resident_bytes: int
    """Touched arena pages."""
    otherwise_resident_bytes: int
    """With regions in ascending order."""


@dataclass(frozen=True)
class StockGraph:
    """A graph as it runs on one thread."""

    graph: GraphProto
    translation: Translation
    in_running_order: bool = False
    """As in optimized files."""
    _walks: dict[tuple[int, ...], list[int]] = field(init=False, default_factory=dict[tuple[int, ...], list[int]])
    _predictions: dict[tuple[int, ...], StockBytes] = field(
        init=False, default_factory=dict[tuple[int, ...], StockBytes]
    )

    def in_own_order(self) -> StockBytes:
        return self.predict(self._running_order)

    def reordered(self, positions: Sequence[int]) -> StockBytes:
        """Return a file's memory with nodes in this order; of repeated nodes the first counts."""
        return self.predict(self._default_order(positions))

    def predict(self, nodes: Sequence[int]) -> StockBytes:
        key = tuple(nodes)
        if key not in self._predictions:
            run = self._frame.allocations(key)
            pattern = pattern_bytes(run)
            self._predictions[key] = StockBytes(
                order_bytes=self._peak(key),
                reuse_bytes=run.peak_bytes,
                pattern_bytes=pattern,
                resident_bytes=_resident_bytes(run, pattern, StockArena()),
                otherwise_resident_bytes=_resident_bytes(run, pattern, StockArena(ascends=True)),
            )
        return self._predictions[key]

    @property
    def peak_bytes(self) -> int:
        return self._peak(self._running_order)

    def peak_of(self, positions: Sequence[int]) -> int:
        return self._peak(self._default_order(positions))

    def numbered(self, order: NodeOrder) -> NodeOrder | None:
        """Return a file order that makes the runtime run the ops as in `order`, or None.

        None if nodes run twice or bodies are planned.
        """
        if order.names or order.inner:
            return None
        walked = self._default_order(order.nodes)
        constant = set(order.nodes).difference(walked)
        numbered = [*(node for node in order.nodes if node in constant), *walked]
        found, expected = (
            order_of_ops(self.translation, nodes) for nodes in (self._default_order(numbered), order.nodes)
        )
        return NodeOrder(numbered, {}) if (found == expected).all() else None

    @property
    def is_ordered_at_random(self) -> bool:
        """Whether several nodes leave the blocked layout: the runtime orders them at random."""
        return sum(operator_of(node) == FROM_BLOCKED for node in self.graph.node) > 1

    @property
    def unmodeled(self) -> tuple[str, ...]:
        calls = () if has_frames(self.translation) else (_CALLS,)
        unknown = (_UNKNOWN,) if self.translation.has_unknown_sizes else ()
        return (*calls, *unknown, *((_ORDER,) if self.is_ordered_at_random else ()))

    @cached_property
    def _running_order(self) -> Sequence[int]:
        return range(len(self.graph.node)) if self.in_running_order else default_order_of(self.graph)

    @cached_property
    def _frame(self) -> StockFrame:
        return StockFrame(self.translation, self.graph)

    def _default_order(self, positions: Sequence[int]) -> list[int]:
        key = tuple(dict.fromkeys(positions))
        if key not in self._walks:
            self._walks[key] = default_order_among(self.graph, key)
        return self._walks[key]

    def _peak(self, nodes: Sequence[int]) -> int:
        return int(self._frame.problem.evaluate(order_of_ops(self.translation, nodes)).peaks.sum())


def running_nodes(graph: GraphProto) -> list[tuple[str, ...]]:
    return [tuple(node.output) for node in graph.node if operator_of(node) not in CONSTANTS]


def _resident_bytes(run: Allocations, pattern: int, arena: StockArena) -> int:
    _replay(run, arena, run.events)
    others = [(block, made) for block, made in run.events if run.roles[block] is not StockRole.VALUE]
    for _ in range(_RUNS - 1):
        values = arena.allocate(pattern) if pattern else None
        _replay(run, arena, others)
        if values is not None:
            arena.release(values)
    return arena.resident_bytes


def _replay(run: Allocations, arena: StockArena, events: Sequence[tuple[int, bool]]) -> None:
    chunks: dict[int, Any] = {}
    for block, made in events:
        if made:
            chunks[block] = arena.allocate(run.sizes[block])
        else:
            arena.release(chunks.pop(block))
    for chunk in chunks.values():
        arena.release(chunk)
