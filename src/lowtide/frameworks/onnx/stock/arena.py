"""The stock runtime's memory pattern and arena."""

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field

from lowtide.frameworks.onnx.stock.reuse import Allocations, StockRole

_ROUNDING = 256
_FIRST_REGION = 2**20
_LARGEST_GROWTH = 2**30
_MOST_SPARE = 128 * 2**20
_PAGE = 4096
_TABLE_ENTRY = 8
"""Bytes per possible chunk."""


@dataclass(slots=True, eq=False)
class _StockChunk:
    region: int
    offset: int
    size: int
    place: int
    """Its region's rank by address."""
    free: bool = True
    before: "_StockChunk | None" = None
    after: "_StockChunk | None" = None

    @property
    def key(self) -> tuple[int, int, int]:
        return self.size, self.place, self.offset


@dataclass(slots=True)
class StockArena:
    """Chunks in doubling regions; covered pages stay resident.

    Source: BFCArena of ONNX Runtime 1.31 with default settings. New regions are below the last, or above if `ascends`.
    Complexity: O(log chunks) to find a chunk, O(free chunks) to keep them sorted.
    """

    ascends: bool = False
    _next_region: int = _FIRST_REGION
    _regions: list[int] = field(default_factory=list[int])
    _touched: list[list[tuple[int, int]]] = field(default_factory=list[list[tuple[int, int]]])
    """Covered pages by region, as sorted disjoint ranges."""
    _free: list[_StockChunk] = field(default_factory=list[_StockChunk])

    @property
    def resident_bytes(self) -> int:
        pages = sum(end - first for ranges in self._touched for first, end in ranges)
        return _PAGE * pages + self.reserved_bytes * _TABLE_ENTRY // _ROUNDING

    @property
    def reserved_bytes(self) -> int:
        return sum(self._regions)

    def allocate(self, size: int) -> _StockChunk:
        rounded = max(1, -(-size // _ROUNDING)) * _ROUNDING
        chunk = self._find(rounded) or self._new_region(rounded)
        if chunk.size >= 2 * rounded or chunk.size - rounded >= _MOST_SPARE:
            self._split(chunk, rounded)
        chunk.free = False
        _add_range(self._touched[chunk.region], chunk.offset // _PAGE, -(-(chunk.offset + size) // _PAGE))
        return chunk

    def release(self, chunk: _StockChunk) -> None:
        chunk.free = True
        after, before = chunk.after, chunk.before
        if after is not None and after.free:
            self._free.remove(after)
            self._join(chunk, after)
        if before is not None and before.free:
            self._free.remove(before)
            self._join(before, chunk)
            chunk = before
        insort(self._free, chunk, key=lambda entry: entry.key)

    def _find(self, size: int) -> _StockChunk | None:
        place = bisect_left(self._free, (size, -len(self._regions), -1), key=lambda entry: entry.key)
        return self._free.pop(place) if place < len(self._free) else None

    def _new_region(self, size: int) -> _StockChunk:
        grown = False
        while size > self._next_region:
            self._next_region *= 2
            grown = True
        number = len(self._regions)
        chunk = _StockChunk(number, 0, self._next_region, number if self.ascends else -number)
        self._regions.append(self._next_region)
        self._touched.append([])
        if not grown:
            self._next_region = min(2 * self._next_region, _LARGEST_GROWTH)
        return chunk

    def _split(self, chunk: _StockChunk, size: int) -> None:
        rest = _StockChunk(
            chunk.region, chunk.offset + size, chunk.size - size, chunk.place, before=chunk, after=chunk.after
        )
        if chunk.after is not None:
            chunk.after.before = rest
        chunk.size, chunk.after = size, rest
        insort(self._free, rest, key=lambda entry: entry.key)

    def _join(self, first: _StockChunk, second: _StockChunk) -> None:
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first


def _add_range(ranges: list[tuple[int, int]], first: int, end: int) -> None:
    start = bisect_left(ranges, first, key=lambda entry: entry[1])
    stop = bisect_right(ranges, end, key=lambda entry: entry[0])
    met = ranges[start:stop]
    ranges[start:stop] = [(min([first, *(entry[0] for entry in met)]), max([end, *(entry[1] for entry in met)]))]


_ALIGNMENT = 256


def pattern_bytes(run: Allocations) -> int:
    """Return the size of the block that holds all values of a run.

    Source: MemPatternPlanner of ONNX Runtime 1.31. Complexity: O(values * live values).
    """
    live: list[tuple[int, int, int]] = []
    """Offset, size and block, not sorted by offset."""
    most = 0
    for block, made in run.events:
        if run.roles[block] is not StockRole.VALUE:
            continue
        if not made:
            live = [entry for entry in live if entry[2] != block]
            continue
        size = -(-run.sizes[block] // _ALIGNMENT) * _ALIGNMENT
        place, offset = _best_gap(live, size)
        live.insert(place, (offset, size, block))
        most = max(most, offset + size)
    return most


def _best_gap(live: list[tuple[int, int, int]], size: int) -> tuple[int, int]:
    best = (len(live), live[-1][0] + live[-1][1] if live else 0)
    waste: int | None = None
    end = 0
    for place, (offset, taken, _) in enumerate(live):
        gap = offset - end
        if gap >= size and (waste is None or gap - size < waste):
            waste, best = gap - size, (place, end)
        end = max(end, offset + taken)
    return best
