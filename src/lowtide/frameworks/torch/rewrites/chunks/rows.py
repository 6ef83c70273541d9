"""Where the rows of a product lie in tensors of any shape: as equal parts, one after the other in memory."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProductRows:
    """How many rows there are; a tensor that has them holds its share of each in one stretch, in their order."""

    count: int

    def among(self, first: int, last: int) -> tuple[int, int]:
        """Return which rows are made of some rows of the product: from one, up to another."""
        return first, last

    def leading(self, shape: Sequence[int]) -> int | None:
        """Return how many dimensions, the first ones, count the rows; None where the tensor does not have them."""
        product = 1
        for place, size in enumerate(shape):
            product *= size
            if product and product % self.count == 0:
                return place + 1
        return None

    def flat(self, shape: Sequence[int]) -> list[int]:
        """Return a shape with all dimensions that count rows in one, the first."""
        leading = self._known(shape)
        return [math.prod(shape[:leading]), *shape[leading:]]

    def of_chunk(self, shape: Sequence[int], rows: int) -> list[int]:
        """Return the shape that a chunk of some rows has, with as many dimensions."""
        leading = self._known(shape)
        first, *rest = self.flat(shape)
        return [*[1] * (leading - 1), first // self.count * rows, *rest]

    def share(self, shape: Sequence[int]) -> int:
        """Return how many places of the first dimension of the flat shape one row takes."""
        return self.flat(shape)[0] // self.count

    def lie_alike(self, operand: Sequence[int], result: Sequence[int]) -> bool:
        """Tell whether an operand that is broadcast to a shape has that shape's rows."""
        leading = self.leading(result)
        return leading is not None and len(operand) == len(result) and operand[:leading] == result[:leading]

    def are_shared(self, operand: Sequence[int], result: Sequence[int]) -> bool:
        """Tell whether an operand that is broadcast to a shape is the same for every row."""
        outer = len(result) - self._known(result)
        return all(size == 1 for size in operand[: max(0, len(operand) - outer)])

    def _known(self, shape: Sequence[int]) -> int:
        leading = self.leading(shape)
        if leading is None:
            raise ValueError(f"a tensor of shape {list(shape)} does not have {self.count} rows")
        return leading


NO_ROWS = ProductRows(0)
"""What stands for rows that nobody has told."""


@dataclass(frozen=True, slots=True)
class SlicedRows(ProductRows):
    """The rows of a slice: of every sequence those between two places, one sequence after the other."""

    of: ProductRows
    """The rows that were sliced."""
    length: int
    """How many of them a sequence has."""
    start: int
    """The place of the first one that is kept."""
    stop: int
    """The place after the last one."""

    def among(self, first: int, last: int) -> tuple[int, int]:
        """Return which rows are made of some rows of the product: from one, up to another."""
        first, last = self.of.among(first, last)
        return self._kept_before(first), self._kept_before(last)

    def stretches(self, first: int, last: int) -> Iterator[tuple[int, bool]]:
        """Yield what some of the rows that were sliced consist of: how many, and whether they are kept."""
        while first < last:
            place = first % self.length
            is_kept = self.start <= place < self.stop
            end = self.stop if is_kept else self.start if place < self.start else self.length
            count = min(last - first, end - place)
            yield count, is_kept
            first += count

    def _kept_before(self, row: int) -> int:
        sequences, place = divmod(row, self.length)
        kept = self.stop - self.start
        return sequences * kept + min(max(place - self.start, 0), kept)
