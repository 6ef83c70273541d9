"""Compare outputs under a plan with those of the unmodified program, which may differ from run to run."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.planning.measured import Agreement

_MOST_RUNS = 5

T = TypeVar("T")


def compare_outputs(
    plain: T, planned: T, run_plain: Callable[[], T], difference: Callable[[T, T], float] | None = None
) -> Agreement:
    """Return how planned outputs agree with unmodified ones.

    If bits differ, the unmodified program runs up to four more times: some kernels sum in another order in each run.
    `difference` returns 0 for equal bits.
    """
    differ: Callable[[Any, Any], float] = difference or largest_difference
    largest = differ(plain, planned)
    if largest == 0:
        return Agreement(outputs_equal=True)
    runs = [plain]
    own = 0.0
    while len(runs) < _MOST_RUNS:
        runs.append(run_plain())
        own = max(differ(*pair) for pair in combinations(runs, 2))
        largest = min(largest, differ(runs[-1], planned))
    return Agreement(outputs_equal=False, largest_difference=largest, own_difference=own)


def largest_difference(one: Any, other: Any) -> float:
    """Return the largest difference of nested arrays, relative to each array's maximum.

    It is 0 for equal bits only, 1 if types, shapes or other values differ.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        ours, theirs = cast("Mapping[Any, Any]", one), cast("Mapping[Any, Any]", other)
        if list(ours) != list(theirs):
            return 1.0
        return largest_difference(list(ours.values()), list(theirs.values()))
    if isinstance(one, Sequence) and isinstance(other, Sequence) and not isinstance(one, str | bytes):
        ours, theirs = cast("Sequence[Any]", one), cast("Sequence[Any]", other)
        if len(ours) != len(theirs):
            return 1.0
        return max(map(largest_difference, ours, theirs), default=0.0)
    return _difference_of_arrays(np.asarray(cast("Any", one)), np.asarray(cast("Any", other)))


def _difference_of_arrays(one: NDArray[Any], other: NDArray[Any]) -> float:
    if one.dtype != other.dtype or one.shape != other.shape:
        return 1.0
    if one.dtype == np.object_:
        return float(repr(one.tolist()) != repr(other.tolist()))
    if one.tobytes() == other.tobytes():
        return 0.0
    if one.dtype.kind in "fc":
        wide = np.result_type(one.dtype, np.float64)
    elif "float" in one.dtype.name:  # bfloat16 and others unknown to NumPy
        wide = np.dtype(np.float64)
    else:
        return 1.0
    with np.errstate(all="ignore"):
        largest = float(np.abs(one.astype(wide) - other.astype(wide)).max())
        whole = float(np.abs(one.astype(wide)).max())
    if not math.isfinite(largest) or not math.isfinite(whole) or whole == 0:
        return 1.0
    return max(largest / whole, sys.float_info.min)  # zeros of other signs differ, too
