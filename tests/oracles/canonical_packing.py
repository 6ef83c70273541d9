"""The oracle of the second exact search: the first packing in canonical order, by trying everything.

A packing is met by placing its buffers by ascending offset, those at one offset by ascending rank, each at the least
offset that what was placed before leaves it. The search goes depth first and takes the choices in that order, so what
it returns is the first of all packings within the capacity; it infers nothing. Exponential in the number of buffers.
"""

from dataclasses import dataclass, field

from lowtide.engine.packing import Buffers

RANKS = range(3)
"""By width, area and the most live bytes met; by those bytes, area and width; by those bytes, width and area."""


def first_packing(buffers: Buffers, capacity: int, which: int) -> list[int] | None:
    """Return the offsets of the first packing by one of the three ranks; None where there is none.

    The buffers have neither gaps nor fixed offsets nor pairs.
    """
    search = _Search(buffers, capacity, _ranks(buffers, which))
    return search.offsets if search.solve(0, -1) else None


def _ranks(buffers: Buffers, which: int) -> list[int]:
    first, last, sizes = (column.tolist() for column in (buffers.first, buffers.last, buffers.sizes))

    def key(k: int) -> tuple[int, ...]:
        width = last[k] - first[k]
        area = width * sizes[k]
        met = max(
            sum(size for a, b, size in zip(first, last, sizes, strict=True) if a <= step < b)
            for step in range(first[k], last[k])
        )
        return ((-width, -area, -met, k), (-met, -area, -width, k), (-met, -width, -area, k))[which]

    order = sorted(range(len(buffers)), key=key)
    return [order.index(k) for k in range(len(buffers))]


@dataclass
class _Search:
    buffers: Buffers
    capacity: int
    ranks: list[int]
    offsets: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.offsets = [-1] * len(self.buffers)

    def solve(self, level: int, last_rank: int) -> bool:
        """Place what is unplaced, nothing before (level, last_rank)."""
        unplaced = [k for k, offset in enumerate(self.offsets) if offset < 0]
        choices = sorted((self._least(k), self.ranks[k], k) for k in unplaced)
        if any(offset + self.buffers.sizes[k] > self.capacity for offset, _, k in choices):
            return False
        for offset, rank, k in choices:
            if (offset, rank) > (level, last_rank):
                self.offsets[k] = offset
                if self.solve(offset, rank):
                    return True
                self.offsets[k] = -1
        return not unplaced

    def _least(self, buffer: int) -> int:
        """Return the least offset above everything placed that is alive together with a buffer."""
        first, last = self.buffers.first, self.buffers.last
        top = max(
            (
                offset + int(self.buffers.sizes[k])
                for k, offset in enumerate(self.offsets)
                if offset >= 0 and first[k] < last[buffer] and first[buffer] < last[k]
            ),
            default=0,
        )
        step = int(self.buffers.alignment[buffer])
        return -(-top // step) * step
