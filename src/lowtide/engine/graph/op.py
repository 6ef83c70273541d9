"""One op as a record, and all ops of a program as columns: what there is to know of an op is listed here."""

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
from lowtide.engine.graph.exact import check_total, exact_counts, exact_rows, exact_sizes
from lowtide.engine.graph.rows import Ids, Rows

T = TypeVar("T")
OpColumnsT = TypeVar("OpColumnsT", bound="OpColumns")


class Op(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """An op; buffers and ops are referred to by position."""

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
    cost: float = 1.0
    flops: float | None = None
    traffic_bytes: int | None = None
    ranks: int = 1
    rank_span: int = 1
    callees: tuple[str, ...] = ()
    device: str | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        """Do nothing. Python looks at signals in its own calls, so Ctrl-C works while millions are decoded."""


@dataclass(frozen=True, eq=False, kw_only=True)
class OpColumns:
    """The ops of a program, one array or list per attribute, each with one entry per op."""

    op_names: Sequence[str]
    op_kinds: Sequence[str]
    reads: Rows
    writes: Rows
    mutates: Rows
    """Existing buffers that the op writes into."""
    after: Rows
    """Control predecessors: they order, but keep nothing alive."""
    in_place: Rows
    """Optional in-place pairs, flat: read buffer, written buffer, read buffer, written buffer, ..."""
    scratch: NDArray[np.int64]
    """Bytes every op needs while it runs, callees not counted."""
    pure: NDArray[np.bool_]
    """Whether the op computes the same from the same. `graph.reruns` says which ops may run twice."""
    ordered: NDArray[np.bool_]
    """Whether the op keeps its place among all ordered ops."""
    cost: NDArray[np.float64]
    """Run time of every op, in seconds where known, else 1.0."""
    flops: NDArray[np.float64]
    """Floating-point operations of every op, callees not counted; NaN where whoever made the graph did not count."""
    traffic: NDArray[np.float64]
    """Bytes of every op's operands and results, as their shapes say; NaN where whoever made the graph did not count."""
    ranks: NDArray[np.int32]
    """How many processes run the op together; 1 for all but collectives, of which all ranks follow the same plan."""
    rank_spans: NDArray[np.int32]
    """How many consecutive ranks the processes of a collective lie among: it is what says whether they share a node."""
    callees: Sequence[tuple[str, ...]]
    """Names of the graphs that the op calls."""
    devices: Sequence[str | None]
    """Where every op runs, by name; None where nobody said."""
    sources: Sequence[str | None]
    """Where the user's program has every op, "blocks.3.mlp.act at model.py:41"; None where nobody said. No plan depends
    on it."""

    def described(self, op: OpId) -> str:
        """Return an op as messages call it: by its name and, where that is known, where the user's program has it."""
        source = self.sources[op]
        return repr(self.op_names[op]) if source is None else f"{self.op_names[op]!r} ({source})"

    def op(self, op: OpId) -> Op:
        """Return one op by id."""
        return next(self._between(op, op + 1))

    def ops(self) -> Iterator[Op]:
        """Iterate all ops in program order, several times faster than one by one."""
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
        """Return the optional in-place pairs of one op: (read buffer, written buffer)."""
        flat = self.in_place[op].tolist()
        return list(zip(flat[::2], flat[1::2], strict=True))

    def take_ops(self: OpColumnsT, order: Ids) -> OpColumnsT:
        """Return the given ops as a program, in this order. `after` still holds their old ids."""
        taken: dict[str, Any] = {}
        for column in fields(OpColumns):
            values = getattr(self, column.name)
            if isinstance(values, Rows):
                taken[column.name] = values.take(order)
            elif isinstance(values, np.ndarray):
                taken[column.name] = values[order]
            else:
                taken[column.name] = [values[op] for op in order.tolist()]
        return replace(self, **taken)


def op_columns(ops: Sequence[Op]) -> dict[str, Any]:
    """Return the fields of `OpColumns` for a list of ops.

    Raises GraphError for ids and sizes that no array can hold.
    """
    column: dict[str, tuple[Any, ...]] = {name: tuple(map(attrgetter(name), ops)) for name in Op.__struct_fields__}
    names: tuple[str, ...] = column["name"]
    flat_pairs = [tuple(chain.from_iterable(pairs)) for pairs in column["in_place"]]
    return {
        "op_names": names,
        "op_kinds": _each_once(column["kind"]),
        "reads": exact_rows(column["reads"], "reads", names),
        "writes": exact_rows(column["writes"], "writes", names),
        "mutates": exact_rows(column["mutates"], "mutates", names),
        "after": exact_rows(column["after"], "after", names),
        "in_place": exact_rows(flat_pairs, "in_place", names),
        "scratch": exact_sizes(column["scratch_bytes"], "scratch of op", names),
        "pure": np.asarray(column["pure"], np.bool_),
        "ordered": np.asarray(column["ordered"], np.bool_),
        "cost": np.asarray(column["cost"], np.float64),
        "flops": np.asarray([math.nan if flops is None else flops for flops in column["flops"]], np.float64),
        "traffic": np.asarray([math.nan if size is None else size for size in column["traffic_bytes"]], np.float64),
        "ranks": exact_counts(column["ranks"], "ranks", names),
        "rank_spans": exact_counts(column["rank_span"], "rank span", names),
        "callees": column["callees"],
        "devices": _each_once(column["device"]),
        "sources": _each_once(column["source"]),
    }


def joined_columns(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the fields of `OpColumns` for a program in several parts, each as `op_columns` gives it."""
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


def _each_once(texts: Iterable[T]) -> tuple[T, ...]:
    """Return texts with one object for all that are equal: what a file says a million times is held once."""
    known: dict[T, T] = {}
    return tuple([known.setdefault(text, text) for text in texts])
