"""What a run adds to the resident memory of this process, and how long it takes."""

import hashlib
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from lowtide.frameworks.resident import ResidentGrowth


def measure_runs(session: Any, inputs: Mapping[str, Any], runs: int, *, as_it_comes: bool = False) -> dict[str, Any]:
    """Run a session so often and return the bytes it adds to resident memory, the seconds of a run and a digest.

    `growth_bytes` is the highest resident memory in any run above that before the first, inputs, weights and pages of
    code apart, unless these shall become resident `as_it_comes`; `resident_bytes` is that of the whole process. Both
    are None where the system does not tell. `seconds` is the median without the first two runs.
    """
    growth = ResidentGrowth(load_files=not as_it_comes)
    seconds: list[float] = []
    results: Sequence[Any] = ()
    for _ in range(runs):
        results = ()
        start = time.perf_counter()
        results = session.run(None, inputs)
        seconds.append(time.perf_counter() - start)
    return {
        "growth_bytes": growth.highest_bytes(),
        "resident_bytes": growth.resident_bytes(),
        "seconds": statistics.median(seconds[2:] or seconds),
        "digest": digest(results),
    }


def digest(results: Sequence[Any]) -> str:
    """Return a hash of all bits of a run's results, their types and shapes."""
    found = hashlib.sha256()
    for result in results:
        _add(found, result)
    return found.hexdigest()


def _add(found: Any, result: Any) -> None:
    if isinstance(result, np.ndarray):
        array = cast("np.ndarray[Any, Any]", result)
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(repr(array.tolist()).encode() if array.dtype == np.object_ else np.ascontiguousarray(array).data)
    else:
        found.update(repr(result).encode())
