"""Small edits of a graph: a new graph that differs by one op, one buffer or one edge, in one pass over flat arrays.

Only what is edited is new; nothing is checked, since whoever edits knows what is valid. Ops are named by their place.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lowtide.graph.graph import Graph
from lowtide.graph.lifetime import Lifetime
from lowtide.graph.rows import Rows

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOp:
    """An op to be inserted; `after` holds places in the graph as it is before."""

    name: str
    kind: str
    reads: Sequence[int] = ()
    writes: Sequence[int] = ()
    mutates: Sequence[int] = ()
    after: Sequence[int] = ()
    in_place: Sequence[tuple[int, int]] = ()
    scratch_bytes: int = 0
    pure: bool = True
    ordered: bool = False
    cost: float = 1.0
    flops: float = math.nan
    callees: tuple[str, ...] = ()
    device: str | None = None


def append_buffer(graph: Graph, name: str, size_bytes: int, lifetime: Lifetime, space: int) -> Graph:
    """Return the graph with one more buffer, whose id is the number of buffers before."""
    return replace(
        graph,
        buffer_names=[*graph.buffer_names, name],
        sizes=np.append(graph.sizes, np.int64(size_bytes)),
        lifetimes=np.append(graph.lifetimes, np.uint8(lifetime)),
        buffer_spaces=np.append(graph.buffer_spaces, np.int16(space)),
    )


def insert_op(graph: Graph, place: int, op: NewOp) -> Graph:
    """Return the graph with an op inserted before the one at `place`."""
    after = Rows(graph.after.offsets, graph.after.values + (graph.after.values >= place).astype(np.int32))
    return replace(
        graph,
        op_names=_with(graph.op_names, place, op.name),
        op_kinds=_with(graph.op_kinds, place, op.kind),
        reads=_insert(graph.reads, place, op.reads),
        writes=_insert(graph.writes, place, op.writes),
        mutates=_insert(graph.mutates, place, op.mutates),
        after=_insert(after, place, op.after),
        in_place=_insert(graph.in_place, place, [buffer for pair in op.in_place for buffer in pair]),
        scratch=np.insert(graph.scratch, place, op.scratch_bytes),
        pure=np.insert(graph.pure, place, op.pure),
        ordered=np.insert(graph.ordered, place, op.ordered),
        cost=np.insert(graph.cost, place, op.cost),
        flops=np.insert(graph.flops, place, op.flops),
        callees=_with(graph.callees, place, op.callees),
        devices=_with(graph.devices, place, op.device),
    )


def permute_ops(graph: Graph, order: NDArray[np.int32]) -> Graph:
    """Return the graph with the ops of `order` in that order; ops left out are gone, edges from them too."""
    place = np.full(graph.n_ops, -1, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    kept = order.tolist()
    return replace(
        graph,
        op_names=[graph.op_names[op] for op in kept],
        op_kinds=[graph.op_kinds[op] for op in kept],
        reads=graph.reads.take(order),
        writes=graph.writes.take(order),
        mutates=graph.mutates.take(order),
        after=_renamed(graph.after.take(order), place),
        in_place=graph.in_place.take(order),
        scratch=graph.scratch[order],
        pure=graph.pure[order],
        ordered=graph.ordered[order],
        cost=graph.cost[order],
        flops=graph.flops[order],
        callees=[graph.callees[op] for op in kept],
        devices=[graph.devices[op] for op in kept],
    )


def set_after(graph: Graph, place: int, after: Sequence[int]) -> Graph:
    """Return the graph with other control predecessors of the op at `place`."""
    return replace(graph, after=_replace(graph.after, place, after))


def set_read(graph: Graph, place: int, old: int, new: int) -> Graph:
    """Return the graph with the op at `place` reading `new` where it read `old`, in its in-place pairs too."""
    reads, pairs = graph.reads[place].tolist(), graph.in_place[place].tolist()
    pairs[::2] = [new if read == old else read for read in pairs[::2]]
    return replace(
        graph,
        reads=_replace(graph.reads, place, [new if read == old else read for read in reads]),
        in_place=_replace(graph.in_place, place, pairs),
    )


def _with(items: Sequence[T], place: int, item: T) -> list[T]:
    return [*items[:place], item, *items[place:]]


def _insert(rows: Rows, row: int, values: Sequence[int]) -> Rows:
    at = rows.offsets[row]
    offsets = np.concatenate([rows.offsets[: row + 1], rows.offsets[row:] + len(values)])
    return Rows(offsets, np.concatenate([rows.values[:at], np.asarray(values, np.int32), rows.values[at:]]))


def _replace(rows: Rows, row: int, values: Sequence[int]) -> Rows:
    first, last = rows.offsets[row], rows.offsets[row + 1]
    offsets = np.concatenate([rows.offsets[: row + 1], rows.offsets[row + 1 :] + (len(values) - (last - first))])
    return Rows(offsets, np.concatenate([rows.values[:first], np.asarray(values, np.int32), rows.values[last:]]))


def _renamed(rows: Rows, names: NDArray[np.int32]) -> Rows:
    """Return the rows with every value under its new name; values without one (-1) are left out."""
    values = names[rows.values]
    kept = np.concatenate([[0], np.cumsum(values >= 0)])
    return Rows(kept[rows.offsets].astype(np.int64), values[values >= 0])
