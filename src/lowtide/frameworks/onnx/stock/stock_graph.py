"""The graph that the stock runtime runs: in which order, what that takes, and what of it is not known."""

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import GraphProto

from lowtide.engine.analysis import Problem
from lowtide.frameworks.onnx.operators.nodes import operator_of
from lowtide.frameworks.onnx.operators.tables import CONSTANTS, FROM_BLOCKED
from lowtide.frameworks.onnx.reading.default_order import default_order_among, default_order_of
from lowtide.frameworks.onnx.reading.translation import Translation
from lowtide.frameworks.onnx.stock.frames import has_frames, order_of_ops
from lowtide.frameworks.onnx.stock.predict import StockBytes, predict_stock

_CALLS = "what runs inside functions and unknown operators, which counts at its peak"
_ORDER = "the order of the runtime at this level, which is another one in every process"
_UNKNOWN = "values whose size only a run tells, which count as 0 bytes"


@dataclass(frozen=True, slots=True)
class StockGraph:
    """A graph and its reading, as the stock runtime runs it on one thread."""

    graph: GraphProto
    translation: Translation
    in_running_order: bool = False
    """Whether the nodes stand as they run, which is so where the runtime's optimizations wrote them."""

    def as_it_stands(self) -> StockBytes:
        """Return what runs of the graph take."""
        return predict_stock(self.translation, self.graph, self._running_order())

    def reordered(self, positions: Sequence[int]) -> StockBytes:
        """Return what runs take of a file with the nodes in this order; of one that stands twice the first counts.

        The runtime keeps no more of them, unless its optimizations are off.
        """
        return predict_stock(self.translation, self.graph, self._default_order(positions))

    @property
    def peak_bytes(self) -> int:
        """Live bytes at the peak of the graph as it stands."""
        return self._peak(self._running_order())

    def peak_of(self, positions: Sequence[int]) -> int:
        """Return the live bytes at the peak of a file with the nodes in this order."""
        return self._peak(self._default_order(positions))

    def _running_order(self) -> Sequence[int]:
        return range(len(self.graph.node)) if self.in_running_order else default_order_of(self.graph)

    def _default_order(self, positions: Sequence[int]) -> list[int]:
        return default_order_among(self.graph, list(dict.fromkeys(positions)))

    def _peak(self, nodes: Sequence[int]) -> int:
        problem = Problem(self.translation.graph)
        return int(problem.evaluate(order_of_ops(self.translation, nodes)).peaks.sum())

    @property
    def is_ordered_at_random(self) -> bool:
        """Whether the runtime went back from its blocked layout in several places, which it adds in any order."""
        return sum(operator_of(node) == FROM_BLOCKED for node in self.graph.node) > 1

    @property
    def unmodeled(self) -> tuple[str, ...]:
        """What the figures leave out, a sentence each."""
        calls = () if has_frames(self.translation) else (_CALLS,)
        unknown = any("counts as 0 bytes" in note for note in self.translation.graph.unmodeled)
        return (*calls, *((_UNKNOWN,) if unknown else ()), *((_ORDER,) if self.is_ordered_at_random else ()))


def running_nodes(graph: GraphProto) -> list[tuple[str, ...]]:
    """Return what each node writes that the runtime does not make a weight of when it loads the graph."""
    return [tuple(node.output) for node in graph.node if operator_of(node) not in CONSTANTS]
