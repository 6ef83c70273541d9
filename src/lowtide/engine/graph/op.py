"""Ops as records and as columns."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph.rows import Ids, Rows, check_total, exact_counts, exact_rows, exact_sizes

T = TypeVar("T")
OpColumnsT = TypeVar("OpColumnsT", bound="OpColumns")


class Op(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """An op. Buffers and ops are positions."""

    name: str
    kind: str
    reads: tuple[BufferId, ...]
    writes: tuple[BufferId, ...]
    mutates: tuple[BufferId, ...] = ()
    after: tuple[OpId, ...] = ()
    in_place: tuple[tuple[BufferId, BufferId], ...] = ()
    scratch_bytes: int = 0
    pure: bool = True
    ordered: bool = False
    repeatable: bool = False
    cost: float = 1.0
    flops: float | None = None
    traffic_bytes: int | None = None
    ranks: int = 1
    rank_span: int = 1
    callees: tuple[str, ...] = ()
    device: str | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        """Let Python handle Ctrl-C while millions of records are decoded."""


@dataclass(frozen=True, eq=False, kw_only=True)
class OpColumns:
    """The ops of a program, one array or list per attribute."""

    op_names: Sequence[str]
    op_kinds: Sequence[str]
    reads: Rows
    writes: Rows
    mutates: Rows
    """Existing buffers it writes."""
    after: Rows
    """Control predecessors, keeping no buffer alive."""
    in_place: Rows
    """Optional pairs, flat: read buffer, written buffer, read buffer, ..."""
    scratch: NDArray[np.int64]
    """Bytes while the op runs, without callees."""
    pure: NDArray[np.bool_]
    """Whether equal inputs give equal results."""
    ordered: NDArray[np.bool_]
    """Whether it keeps its place among ordered ops."""
    repeatable: NDArray[np.bool_]
    cost: NDArray[np.float64]
    """Run time in seconds, 1.0 if unknown."""
    flops: NDArray[np.float64]
    """Floating-point operations, NaN if unknown."""
    traffic: NDArray[np.float64]
    """Bytes of operands and results, NaN if unknown."""
    ranks: NDArray[np.int32]
    """Processes of a collective, else 1."""
    rank_spans: NDArray[np.int32]
    """Consecutive ranks that contain these processes."""
    callees: Sequence[tuple[str, ...]]
    devices: Sequence[str | None]
    sources: Sequence[str | None]
    """Place in the user's program: "blocks.3.mlp.act at model.py:41"."""

    def described(self, op: OpId) -> str:
        source = self.sources[op]
        return repr(self.op_names[op]) if source is None else f"{self.op_names[op]!r} ({source})"

    def op(self, op: OpId) -> Op:
        return next(self._between(op, op + 1))

    def ops(self) -> Iterator[Op]:
        return self._between(0, len(self.op_names))

    def _between(self, first: OpId, last: OpId) -> Iterator[Op]:
        columns = (
            self.op_names[first:last],
            self.op_kinds[first:last],
            map(tuple, self.reads.lists(first, last)),
            map(tuple, self.writes.lists(first, last)),
            map(tuple, self.mutates.lists(first, last)),
            map(tuple, self.after.lists(first, last)),
            (tuple(zip(flat[::2], flat[1::2], strict=True)) for flat in self.in_place.lists(first, last)),
            self.scratch[first:last].tolist(),
            self.pure[first:last].tolist(),
            self.ordered[first:last].tolist(),
            self.repeatable[first:last].tolist(),
            self.cost[first:last].tolist(),
            (None if math.isnan(flops) else flops for flops in self.flops[first:last].tolist()),
            (None if math.isnan(size) else int(size) for size in self.traffic[first:last].tolist()),
            self.ranks[first:last].tolist(),
            self.rank_spans[first:last].tolist(),
            self.callees[first:last],
            self.devices[first:last],
            self.sources[first:last],
        )
        for values in zip(*columns, strict=True):
            yield Op(**dict(zip(Op.__struct_fields__, values, strict=True)))

    def in_place_pairs(self, op: OpId) -> list[tuple[BufferId, BufferId]]:
        flat = self.in_place[op].tolist()
        return list(zip(flat[::2], flat[1::2], strict=True))

    def take_ops(self: OpColumnsT, order: Ids) -> OpColumnsT:
        """Return ops in this order. `after` keeps their old ids."""
        columns: dict[str, Any] = {}
        for column in fields(OpColumns):
            values = getattr(self, column.name)
            if isinstance(values, Rows):
                columns[column.name] = values.take(order)
            elif isinstance(values, np.ndarray):
                columns[column.name] = values[order]
            else:
                columns[column.name] = [values[op] for op in order.tolist()]
        return replace(self, **columns)


def op_columns(ops: Sequence[Op]) -> dict[str, Any]:
    """Return the fields of `OpColumns`; raises GraphError for numbers out of range."""
    column: dict[str, tuple[Any, ...]] = {name: tuple(map(attrgetter(name), ops)) for name in Op.__struct_fields__}
    names: tuple[str, ...] = column["name"]
    flat_pairs = [tuple(chain.from_iterable(pairs)) for pairs in column["in_place"]]
    return {
        "op_names": names,
        "op_kinds": _deduplicated(column["kind"]),
        "reads": exact_rows(column["reads"], "reads", names),
        "writes": exact_rows(column["writes"], "writes", names),
        "mutates": exact_rows(column["mutates"], "mutates", names),
        "after": exact_rows(column["after"], "after", names),
        "in_place": exact_rows(flat_pairs, "in_place", names),
        "scratch": exact_sizes(column["scratch_bytes"], "scratch of op", names),
        "pure": np.asarray(column["pure"], np.bool_),
        "ordered": np.asarray(column["ordered"], np.bool_),
        "repeatable": np.asarray(column["repeatable"], np.bool_),
        "cost": np.asarray(column["cost"], np.float64),
        "flops": np.asarray([math.nan if flops is None else flops for flops in column["flops"]], np.float64),
        "traffic": np.asarray([math.nan if size is None else size for size in column["traffic_bytes"]], np.float64),
        "ranks": exact_counts(column["ranks"], "ranks", names),
        "rank_spans": exact_counts(column["rank_span"], "rank span", names),
        "callees": column["callees"],
        "devices": _deduplicated(column["device"]),
        "sources": _deduplicated(column["source"]),
    }


def joined_columns(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for column, first in parts[0].items():
        pieces = [part[column] for part in parts]
        if isinstance(first, Rows):
            joined[column] = Rows.joined(pieces)
        elif isinstance(first, np.ndarray):
            joined[column] = np.concatenate(pieces)
        else:
            joined[column] = tuple(chain.from_iterable(pieces))
    check_total(joined["scratch"], "scratch of op", joined["op_names"])
    return joined


def _deduplicated(texts: Iterable[T]) -> tuple[T, ...]:
    known: dict[T, T] = {}
    return tuple([known.setdefault(text, text) for text in texts])
