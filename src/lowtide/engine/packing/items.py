"""Rigid items over numbered sections of time."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.errors import MalformedInputError
from lowtide.engine.graph.rows import Rows
from lowtide.engine.packing.buffers import FREE, Buffers, Ints, live_pieces

_NO_OFFSETS, _NO_IDS = np.zeros(0, np.int64), np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """Items to place. Buffers that must keep their distance form one.

    Sections are numbered from 0; each is the time between neighboring births and deaths.
    """

    first: NDArray[np.int32]
    last: NDArray[np.int32]
    sizes: Ints
    alignment: Ints
    fixed: Ints
    steps: Ints
    piece_rows: Ints
    """n + 1 bounds into `pieces`; empty if all items are rectangles."""
    pieces: Ints
    """Rows (first, last, low, high, buffer), by item and low end: half-open sections, and bytes above the item's
    offset."""
    may_overlap: Rows | None
    apart: Rows | None

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def n_sections(self) -> int:
        return int(self.last.max(initial=0))

    @property
    def rectangles(self) -> bool:
        return not len(self.piece_rows)

    @property
    def plain(self) -> bool:
        """Whether all items are free rectangles that conflict when alive together."""
        return self.rectangles and bool((self.fixed == FREE).all())

    def native(self) -> _native.PackItems:
        overlap, apart = (
            Rows(_NO_OFFSETS, _NO_IDS) if rows is None else rows for rows in (self.may_overlap, self.apart)
        )
        pairs = (overlap.offsets, overlap.values, apart.offsets, apart.values)
        pieces = (self.piece_rows, self.pieces.reshape(-1))
        return _native.PackItems(self.first, self.last, self.sizes, self.alignment, self.fixed, *pieces, *pairs)

    def all_pieces(self) -> tuple[Ints, Ints]:
        if self.rectangles:
            every, zero = np.arange(len(self)), np.zeros(len(self), np.int64)
            return every, np.stack([self.first, self.last, zero, self.sizes, every], axis=1, dtype=np.int64)
        return np.repeat(np.arange(len(self)), np.diff(self.piece_rows)), self.pieces

    def height(self, offsets: Ints) -> int:
        return int((offsets + self.sizes).max(initial=0))

    def take(self, ids: NDArray[np.intp]) -> "Items":
        """Return some items in the given order, without sections that they do not distinguish."""
        owners, pieces = self.all_pieces()
        place = np.full(len(self), -1, np.int64)
        place[ids] = np.arange(len(ids))
        kept = place[owners] >= 0
        order = np.argsort(place[owners[kept]], kind="stable")
        owners, pieces = place[owners[kept]][order], pieces[kept][order]
        columns = (self.sizes[ids], self.alignment[ids], self.fixed[ids], self.steps[ids])
        return _items(owners, pieces, columns, self.may_overlap, self.apart)


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The mapping of buffers to items."""

    items: Items
    item_of: Ints
    """The item of every buffer; -1 if it, or its group, is never alive or empty."""
    low: Ints
    """Offset above the item."""

    def buffers_of(self, items: Iterable[int]) -> tuple[int, ...]:
        return tuple(np.flatnonzero(np.isin(self.item_of, list(items))).tolist())

    def offsets_of(self, buffers: Buffers, offsets: Ints) -> Ints:
        result = np.zeros(len(buffers), np.int64) if buffers.fixed is None else np.maximum(buffers.fixed, 0)
        placed = self.item_of >= 0
        result[placed] = offsets[self.item_of[placed]] + self.low[placed]
        return result


def items_of(buffers: Buffers) -> Layout:
    """Return items for buffers: join groups, and drop buffers without bytes or life.

    Raises MalformedInputError for contradictory groups, fixed offsets and alignments.
    """
    live = live_pieces(buffers)
    live = live[buffers.sizes[live[:, 0]] > 0]
    placed = np.zeros(len(buffers), np.bool_)
    placed[live[:, 0]] = True
    group, low = _groups(buffers, placed)
    owners = live[:, 0]
    ids, position = np.unique(group[owners], return_inverse=True)
    item_of = np.full(len(buffers), -1, np.int64)
    item_of[owners] = position
    order = np.lexsort((low[owners], position))
    pieces = np.stack([live[:, 1], live[:, 2], low[owners], low[owners] + buffers.sizes[owners], owners], axis=1)[order]
    columns = (*_columns(buffers, item_of, low, len(ids)), _hulls(position[order], pieces, len(ids)))
    overlap, apart = (_partners(pairs, len(buffers)) for pairs in (buffers.may_overlap, buffers.apart))
    return Layout(_items(position[order], pieces, columns, overlap, apart), item_of, low)


def _hulls(owners: Ints, pieces: Ints, n: int) -> Ints:
    starts = np.searchsorted(owners, np.arange(n))
    lives = np.maximum.reduceat(pieces[:, 1], starts) - np.minimum.reduceat(pieces[:, 0], starts)
    return np.where(lives > 0, lives, np.iinfo(np.int64).max)


def _items(
    owners: Ints, pieces: Ints, columns: tuple[Ints, Ints, Ints, Ints], overlap: Rows | None, apart: Rows | None
) -> Items:
    sizes, alignment, fixed, steps = columns
    _, sections = np.unique(pieces[:, :2], return_inverse=True)
    pieces = pieces.copy()
    pieces[:, :2] = sections.reshape(-1, 2)
    n = len(sizes)
    rows = np.searchsorted(owners, np.arange(n + 1)).astype(np.int64)
    pairs = overlap is not None or apart is not None
    if not pairs and len(owners) == n and (pieces[:, 2] == 0).all() and (pieces[:, 3] == sizes).all():
        first, last, rows, kept = pieces[:, 0], pieces[:, 1], _NO_OFFSETS, np.zeros((0, 5), np.int64)
    else:
        first, last = np.minimum.reduceat(pieces[:, 0], rows[:-1]), np.maximum.reduceat(pieces[:, 1], rows[:-1])
        kept = pieces
    return Items(
        first=np.ascontiguousarray(first, np.int32),
        last=np.ascontiguousarray(last, np.int32),
        sizes=sizes,
        alignment=alignment,
        fixed=fixed,
        steps=steps,
        piece_rows=rows,
        pieces=np.ascontiguousarray(kept),
        may_overlap=overlap,
        apart=apart,
    )


def _groups(buffers: Buffers, placed: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    n = len(buffers)
    group, low = np.arange(n), np.zeros(n, np.int64)
    for members in buffers.aliases:
        kept = [member for member in members if placed[member]]
        group[kept] = min(kept, default=0)
    row_of: dict[int, int] = {}
    for row, members in enumerate(buffers.contiguous):
        at = 0
        joined: list[int] = []
        for member in (member for member in members if placed[member]):
            head = int(group[member])
            if row_of.setdefault(head, row) != row or head in joined:
                raise MalformedInputError(
                    f"buffer {buffers.name(member)} and one of its aliases are both in contiguous groups; keep one"
                )
            joined.append(head)
            same = np.flatnonzero(group == head) if buffers.aliases else np.asarray([member])
            step = int(np.lcm.reduce(buffers.alignment[same]))
            at = -(-at // step) * step
            low[same] = at
            at += int(buffers.sizes[member])
            if int(buffers.sizes[same].max()) > buffers.sizes[member] and member != members[-1]:
                raise MalformedInputError(
                    f"buffer {buffers.name(member)} has a larger alias, which would overlap the next buffer of its "
                    "contiguous group; put the largest alias into the group"
                )
        group[np.isin(group, joined)] = min(joined, default=0)
    return group, low


def _columns(buffers: Buffers, item_of: Ints, low: Ints, n: int) -> tuple[Ints, Ints, Ints]:
    placed = np.flatnonzero(item_of >= 0)
    owner = item_of[placed]
    sizes, alignment, fixed = np.zeros(n, np.int64), np.ones(n, np.int64), np.full(n, FREE, np.int64)
    if len(placed) == n:
        sizes[owner], alignment[owner] = buffers.sizes[placed], buffers.alignment[placed]
        if buffers.fixed is not None:
            fixed[owner] = buffers.fixed[placed]
        return sizes, alignment, fixed
    np.maximum.at(sizes, owner, low[placed] + buffers.sizes[placed])
    np.lcm.at(alignment, owner, buffers.alignment[placed])
    if buffers.fixed is not None:
        where = np.full(n, -1, np.int64)
        for buffer in placed[buffers.fixed[placed] != FREE].tolist():
            item, at = int(item_of[buffer]), int(buffers.fixed[buffer] - low[buffer])
            if at < 0 or (fixed[item] != FREE and fixed[item] != at):
                other = buffers.name(int(where[item])) if where[item] >= 0 else "the group start"
                raise MalformedInputError(
                    f"fixed offsets of {buffers.name(buffer)} and {other} contradict their group; free one"
                )
            fixed[item], where[item] = at, buffer
        misaligned = np.flatnonzero((fixed != FREE) & (fixed % alignment != 0))
        if len(misaligned):
            raise MalformedInputError(
                f"buffer {buffers.name(int(where[misaligned[0]]))}: its fixed offset violates the alignments of its "
                "group; change one of them"
            )
    return sizes, alignment, fixed


def _partners(pairs: Ints | None, n: int) -> Rows | None:
    if pairs is None:
        return None
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    directed = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    return Rows(np.searchsorted(directed[:, 0], np.arange(n + 1)).astype(np.int64), directed[:, 1].astype(np.int32))
