"""A table of addresses, with rows as objects."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import VerificationError
from lowtide.core.index_spaces import BufferId, SpaceId, StepIndex

BEFORE_THE_FIRST_STEP = -1


@dataclass(frozen=True, slots=True)
class Address:
    """The address of one residency: half-open steps and an offset in bytes.

    Inputs start at step 0, or at `BEFORE_THE_FIRST_STEP` if step 0 frees them.
    """

    buffer: BufferId
    first_step: StepIndex
    last_step: StepIndex
    space: SpaceId
    offset: int


class Addresses(Sequence[Address]):
    """A table of addresses, shape (n, 5), with the fields of `Address` as columns."""

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
        if isinstance(rows, cls):
            return rows
        return cls.of_rows([(row.buffer, row.first_step, row.last_step, row.space, row.offset) for row in rows])

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[int, int, int, int, int]]) -> "Addresses":
        try:
            return cls(np.array(rows, np.int64))
        except OverflowError:
            absurd = next(row for row in rows if any(abs(number) >= 2**63 for number in row))
            raise VerificationError(f"{Address(*absurd)} is out of range; correct it") from None
