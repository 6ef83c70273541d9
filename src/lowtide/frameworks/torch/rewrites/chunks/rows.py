"""Where the rows of a product lie in tensors of any shape: as equal parts, one after the other in memory."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProductRows:
    """How many rows there are; a tensor that has them holds its share of each in one stretch, in their order."""

    count: int

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
