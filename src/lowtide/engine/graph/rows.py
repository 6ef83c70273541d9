"""Rows of ids, and conversion to arrays that raises GraphError for numbers out of range."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import GraphError
from lowtide.core.index_spaces import SpaceId

Ids = NDArray[np.int32]
Offsets = NDArray[np.int64]
LARGEST = 2**63 - 1
MOST_IDS = 2**31 - 1
MOST_SPACES = 256


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Row i is `values[offsets[i]:offsets[i + 1]]`. Both arrays are read-only."""

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
        """Iterate over rows as lists, several times faster than slicing."""
        return self.lists(0, len(self))

    def lists(self, first: int, last: int) -> Iterator[list[int]]:
        """Iterate over a half-open range of rows as lists."""
        here = self.offsets[first : last + 1]
        values: list[int] = self.values[here[0] : here[-1]].tolist()
        offsets: list[int] = (here - here[0]).tolist()
        return iter([values[start:stop] for start, stop in pairwise(offsets)])

    def is_equal_to(self, other: "Rows") -> bool:
        """Return whether both have the same rows."""
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.values, other.values)

    def take(self, rows: Ids) -> "Rows":
        """Return the given rows in this order."""
        lengths = np.diff(self.offsets)[rows]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        places = np.arange(int(offsets[-1])) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return Rows(offsets, self.values[places])

    def owners(self) -> Ids:
        """Return the row number of every value."""
        return np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.offsets))

    @classmethod
    def from_flat(cls, lengths: Iterable[int], values: Iterable[int]) -> "Rows":
        """Build rows from lengths and concatenated values."""
        sizes = np.fromiter(lengths, np.int64)
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        return cls(offsets, np.fromiter(values, np.int32))

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]]) -> "Rows":
        """Build rows from lists."""
        return cls.from_flat(map(len, rows), chain.from_iterable(rows))

    @classmethod
    def joined(cls, parts: Sequence["Rows"]) -> "Rows":
        """Concatenate one or more parts."""
        before, offsets = 0, [np.zeros(1, np.int64)]
        for part in parts:
            offsets.append(part.offsets[1:] + before)
            before += len(part.values)
        return cls(np.concatenate(offsets), np.concatenate([part.values for part in parts]))


def _first_outside(values: Sequence[int], least: int, most: int) -> int | None:
    if not values or (min(values) >= least and max(values) <= most):
        return None
    return next(position for position, value in enumerate(values) if not least <= value <= most)


def exact_sizes(values: Sequence[int], label: str, names: Sequence[str]) -> NDArray[np.int64]:
    position = _first_outside(values, 0, LARGEST)
    if position is not None:
        raise GraphError(f"{label} {names[position]!r} has {values[position]} bytes; sizes must be from 0 to 2^63 - 1")
    sizes = np.asarray(values, np.int64)
    check_total(sizes, label, names)
    return sizes


def check_total(sizes: NDArray[np.int64], label: str, names: Sequence[str]) -> None:
    if not sizes.max(initial=0) <= LARGEST // max(len(sizes), 1) and sum(sizes.tolist()) > LARGEST:
        raise GraphError(f"the sizes ({label} {names[0]!r} and following) exceed 2^63 - 1 bytes in total; check units")


def exact_spaces(values: Sequence[SpaceId], names: Sequence[str]) -> NDArray[np.int16]:
    position = _first_outside(values, 0, MOST_SPACES - 1)
    if position is not None:
        raise GraphError(
            f"buffer {names[position]!r} is in memory space {values[position]}; ids count from 0 to at most 255"
        )
    return np.asarray(values, np.int16)


def exact_counts(values: Sequence[int], label: str, names: Sequence[str]) -> NDArray[np.int32]:
    position = _first_outside(values, 1, MOST_IDS)
    if position is not None:
        raise GraphError(f"op {names[position]!r} has {label} {values[position]}; it must be from 1 to 2^31 - 1")
    return np.asarray(values, np.int32)


def exact_rows(lists: Sequence[Sequence[int]], label: str, op_names: Sequence[str]) -> Rows:
    flat = list(chain.from_iterable(lists))
    position = _first_outside(flat, 0, MOST_IDS)
    if position is not None:
        name = op_names[bisect_right(list(accumulate(map(len, lists))), position)]
        raise GraphError(f"op {name!r}: {label} contains {flat[position]}, which is not an id; ids count from 0")
    return Rows.from_flat(map(len, lists), flat)
