"""Compressed rows: many short lists of ids in two flat arrays."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Offsets = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Row i holds values[offsets[i]:offsets[i + 1]]; both arrays are read-only."""

    offsets: Offsets
    values: Ids

    def __post_init__(self) -> None:
        self.offsets.setflags(write=False)
        self.values.setflags(write=False)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Ids:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate the rows as plain lists, which is several times faster than slicing arrays."""
        return self.lists(0, len(self))

    def lists(self, first: int, last: int) -> Iterator[list[int]]:
        """Iterate the rows of a half-open range as plain lists."""
        here = self.offsets[first : last + 1]
        values: list[int] = self.values[here[0] : here[-1]].tolist()
        offsets: list[int] = (here - here[0]).tolist()
        return iter([values[start:stop] for start, stop in pairwise(offsets)])

    def take(self, rows: Ids) -> "Rows":
        """Return the given rows, in their order."""
        lengths = np.diff(self.offsets)[rows]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        places = np.arange(int(offsets[-1])) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return Rows(offsets, self.values[places])

    def owners(self) -> Ids:
        """Return the row number of every value, as int32."""
        return np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.offsets))

    @classmethod
    def from_flat(cls, lengths: Iterable[int], values: Iterable[int]) -> "Rows":
        """Build rows from their lengths and all their values in one sequence."""
        sizes = np.fromiter(lengths, np.int64)
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        return cls(offsets, np.fromiter(values, np.int32))

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]]) -> "Rows":
        """Build rows from a list of lists."""
        return cls.from_flat(map(len, rows), chain.from_iterable(rows))

    @classmethod
    def joined(cls, parts: Sequence["Rows"]) -> "Rows":
        """Return the rows of all parts, one part after the other; there must be at least one."""
        before, offsets = 0, [np.zeros(1, np.int64)]
        for part in parts:
            offsets.append(part.offsets[1:] + before)
            before += len(part.values)
        return cls(np.concatenate(offsets), np.concatenate([part.values for part in parts]))
