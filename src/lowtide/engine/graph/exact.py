"""Numbers from outside as arrays. Where no array can hold one, the error names it."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import GraphError
from lowtide.core.index_spaces import SpaceId
from lowtide.engine.graph.rows import Rows

LARGEST = 2**63 - 1
MOST_IDS = 2**31 - 1
MOST_SPACES = 256


def exact_sizes(values: Sequence[int], what: str, names: Sequence[str]) -> NDArray[np.int64]:
    """Turn sizes into an int64 array; raises GraphError for a negative one and for a total that overflows."""
    if values and not (min(values) >= 0 and max(values) <= LARGEST):
        position = next(place for place, value in enumerate(values) if not 0 <= value <= LARGEST)
        raise GraphError(
            f"{what} {names[position]!r} has {values[position]} bytes; sizes must lie between 0 and 2^63 - 1"
        )
    sizes = np.asarray(values, np.int64)
    check_total(sizes, what, names)
    return sizes


def check_total(sizes: NDArray[np.int64], what: str, names: Sequence[str]) -> None:
    """Raise GraphError for sizes that are together more than an array's integers hold."""
    if not sizes.max(initial=0) <= LARGEST // max(len(sizes), 1) and sum(sizes.tolist()) > LARGEST:
        raise GraphError(f"all sizes ({what} {names[0]!r} and following) together exceed 2^63 - 1 bytes; check units")


def exact_spaces(values: Sequence[SpaceId], names: Sequence[str]) -> NDArray[np.int16]:
    """Turn memory space ids into an array; raises GraphError for an id beyond any space."""
    if values and not (min(values) >= 0 and max(values) < MOST_SPACES):
        position = next(place for place, value in enumerate(values) if not 0 <= value < MOST_SPACES)
        raise GraphError(
            f"buffer {names[position]!r} is in memory space {values[position]}; ids count from 0 to at most 255"
        )
    return np.asarray(values, np.int16)


def exact_counts(values: Sequence[int], what: str, names: Sequence[str]) -> NDArray[np.int32]:
    """Turn numbers of at least 1 into an array; raises GraphError for one that is none or that no array can hold."""
    if values and not (min(values) >= 1 and max(values) <= MOST_IDS):
        position = next(place for place, value in enumerate(values) if not 1 <= value <= MOST_IDS)
        raise GraphError(f"op {names[position]!r} has {what} {values[position]}; it must lie between 1 and 2^31 - 1")
    return np.asarray(values, np.int32)


def exact_rows(lists: Sequence[Sequence[int]], what: str, op_names: Sequence[str]) -> Rows:
    """Turn lists of ids into rows; raises GraphError for an id that no array can hold."""
    flat = list(chain.from_iterable(lists))
    if flat and not (min(flat) >= 0 and max(flat) <= MOST_IDS):
        for name, ids in zip(op_names, lists, strict=True):
            for number in ids:
                if not 0 <= number <= MOST_IDS:
                    raise GraphError(f"op {name!r}: {what} holds {number}, which is no id; ids count from 0")
    return Rows.from_flat(map(len, lists), flat)
