"""Where the residencies of a plan lie: a table, looked at row by row as objects."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import VerificationError
from lowtide.core.index_spaces import BufferId, SpaceId, StepIndex

BEFORE_THE_FIRST_STEP = -1
"""The first step of an address whose buffer is there when a plan begins, and freed by its step 0."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where one residency of a buffer lies; steps are positions in the plan, half-open; offset is in bytes.

    Inputs are there from step 0, those that step 0 frees from `BEFORE_THE_FIRST_STEP`.
    """

    buffer: BufferId
    first_step: StepIndex
    last_step: StepIndex
    space: SpaceId
    offset: int


class Addresses(Sequence[Address]):
    """Many addresses, 40 bytes each, shape (n, 5): the columns are the fields of `Address` in their order."""

    __slots__ = ("table",)

    def __init__(self, table: NDArray[np.int64]) -> None:
        self.table = table.reshape(-1, 5)
        self.table.setflags(write=False)

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Address]:
        return (Address(*row) for row in self.table.tolist())

    @overload
    def __getitem__(self, place: int) -> Address: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Address, ...]: ...
    def __getitem__(self, place: int | slice) -> Address | tuple[Address, ...]:
        if isinstance(place, slice):
            return tuple(Address(*row) for row in self.table[place].tolist())
        return Address(*self.table[place].tolist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Addresses):
            return np.array_equal(self.table, other.table)
        return tuple(self) == other

    def __repr__(self) -> str:
        return f"Addresses({list(self)})"

    @classmethod
    def of(cls, rows: Iterable[Address]) -> "Addresses":
        """Put addresses into a table; raises VerificationError for a number that no memory has."""
        if isinstance(rows, cls):
            return rows
        return cls.of_rows([(row.buffer, row.first_step, row.last_step, row.space, row.offset) for row in rows])

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[int, int, int, int, int]]) -> "Addresses":
        """Put rows, one entry per field of `Address`, into a table; raises VerificationError like `of`."""
        try:
            return cls(np.array(rows, np.int64))
        except OverflowError:
            absurd = next(row for row in rows if any(abs(number) >= 2**63 for number in row))
            raise VerificationError(f"{Address(*absurd)} lies where no memory reaches; correct it") from None
