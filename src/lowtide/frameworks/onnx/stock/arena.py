"""The arena of the stock runtime: best fit with coalescing, in regions that double, and the pages it has touched."""

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field

_ROUNDING = 256
_FIRST_REGION = 2**20
_LARGEST_GROWTH = 2**30
_MOST_SPARE = 128 * 2**20
_PAGE = 4096
_TABLE_ENTRY = 8
"""Bytes of the table for each place where a chunk may begin."""


@dataclass(slots=True, eq=False)
class _StockChunk:
    region: int
    offset: int
    size: int
    place: int
    """Of its region among all of them, by address."""
    free: bool = True
    before: "_StockChunk | None" = None
    after: "_StockChunk | None" = None

    @property
    def key(self) -> tuple[int, int, int]:
        """Smaller chunks first, then those at lower addresses."""
        return self.size, self.place, self.offset


@dataclass(slots=True)
class StockArena:
    """Chunks of regions; the pages that any block ever covered stay resident.

    Source: BFCArena of ONNX Runtime 1.31 with its default settings. Complexity: O(log chunks) to find a block's chunk,
    O(free chunks) to keep them sorted. Of chunks of the same size the one at the lowest address is taken, and regions
    lie where the system puts them: a new one below the last, unless `ascends`.
    """

    ascends: bool = False
    """Whether new regions lie above earlier ones, as in room that other blocks left behind."""
    _next_region: int = _FIRST_REGION
    _regions: list[int] = field(default_factory=list[int])
    """Bytes of each."""
    _touched: list[list[tuple[int, int]]] = field(default_factory=list[list[tuple[int, int]]])
    """Of each region the pages that blocks have covered, as ranges that lie apart, in order."""
    _free: list[_StockChunk] = field(default_factory=list[_StockChunk])

    @property
    def resident_bytes(self) -> int:
        """Bytes of the pages that blocks have covered so far, and of the table that finds the chunks of all regions."""
        pages = sum(end - first for ranges in self._touched for first, end in ranges)
        return _PAGE * pages + self.reserved_bytes * _TABLE_ENTRY // _ROUNDING

    @property
    def reserved_bytes(self) -> int:
        """Bytes of all regions."""
        return sum(self._regions)

    def allocate(self, size: int) -> _StockChunk:
        """Return a chunk for so many bytes, of a new region where no free chunk is large enough."""
        rounded = max(1, -(-size // _ROUNDING)) * _ROUNDING
        chunk = self._find(rounded) or self._new_region(rounded)
        if chunk.size >= 2 * rounded or chunk.size - rounded >= _MOST_SPARE:
            self._split(chunk, rounded)
        chunk.free = False
        _add_range(self._touched[chunk.region], chunk.offset // _PAGE, -(-(chunk.offset + size) // _PAGE))
        return chunk

    def release(self, chunk: _StockChunk) -> None:
        """Give a chunk back; it joins free neighbors."""
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
    """Add a range to others that lie apart, in order; those that it meets become one with it."""
    start = bisect_left(ranges, first, key=lambda entry: entry[1])
    stop = bisect_right(ranges, end, key=lambda entry: entry[0])
    met = ranges[start:stop]
    ranges[start:stop] = [(min([first, *(entry[0] for entry in met)]), max([end, *(entry[1] for entry in met)]))]
