"""What runs of the stock runtime, with its default settings and one thread, would add to resident memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onnx import GraphProto

from lowtide.engine.analysis import Problem
from lowtide.frameworks.onnx.reading.translation import Translation
from lowtide.frameworks.onnx.stock.arena import StockArena
from lowtide.frameworks.onnx.stock.frames import frame_allocations, order_of_ops
from lowtide.frameworks.onnx.stock.pattern import pattern_bytes
from lowtide.frameworks.onnx.stock.reuse import Allocations, StockRole

_RUNS = 3
"""After so many runs every further one finds what it needs: one without a pattern, and two with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StockBytes:
    """Figures of the same runs, each with one more of the runtime's habits in it."""

    order_bytes: int
    """Peak of live bytes in the order, inputs included."""
    reuse_bytes: int
    """The most that is allocated at once where values take over storage of earlier ones."""
    pattern_bytes: int
    """The block that holds all values from the second run on; results and workspaces come on top."""
    resident_bytes: int
    """Pages of the arena that runs touch: what they add to resident memory."""
    otherwise_resident_bytes: int
    """The same where the system puts the arena's regions at addresses in the other order; see `StockArena`."""


def predict_stock(translation: Translation, graph: GraphProto, nodes: Sequence[int]) -> StockBytes:
    """Return what runs take that execute the nodes of a graph in an order, each op as soon as its first node comes.

    The caller lets the results of a run go before the next one.
    Complexity: that of `frame_allocations`, `pattern_bytes` and `StockArena` for all blocks of a run.
    """
    problem = Problem(translation.graph)
    order = order_of_ops(translation, nodes)
    run = frame_allocations(translation, graph, nodes)
    pattern = pattern_bytes(run)
    return StockBytes(
        order_bytes=int(problem.evaluate(order).peaks.sum()),
        reuse_bytes=run.peak_bytes,
        pattern_bytes=pattern,
        resident_bytes=_resident_bytes(run, pattern, StockArena()),
        otherwise_resident_bytes=_resident_bytes(run, pattern, StockArena(ascends=True)),
    )


def _resident_bytes(run: Allocations, pattern: int, arena: StockArena) -> int:
    """Return the pages of an arena that stay: of one run without a pattern, then of runs with it."""
    _replay(run, arena, run.events)
    others = [(block, made) for block, made in run.events if run.roles[block] is not StockRole.VALUE]
    for _ in range(_RUNS - 1):
        values = arena.allocate(pattern) if pattern else None
        _replay(run, arena, others)
        if values is not None:
            arena.release(values)
    return arena.resident_bytes


def _replay(run: Allocations, arena: StockArena, events: list[tuple[int, bool]]) -> None:
    chunks: dict[int, Any] = {}
    for block, made in events:
        if made:
            chunks[block] = arena.allocate(run.sizes[block])
        else:
            arena.release(chunks.pop(block))
    for chunk in chunks.values():
        arena.release(chunk)
