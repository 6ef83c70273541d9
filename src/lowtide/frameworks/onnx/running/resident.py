"""What a run adds to the resident memory of this process, and how long it takes."""

import ctypes
import gc
import hashlib
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np

_POPULATE_READ = 22
"""MADV_POPULATE_READ, which Python has no name for."""


def measure_runs(session: Any, inputs: Mapping[str, Any], runs: int) -> dict[str, Any]:
    """Run a session so often and return the bytes it adds to resident memory, the seconds of a run and a digest.

    `growth_bytes` is the highest resident memory in any run above that before the first, inputs, weights and pages of
    code apart; None where the system does not tell. `seconds` is the median without the first two runs.
    """
    gc.collect()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)  # what loading left behind would hide what runs take
    _load_files()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew here
    before = _kilobytes("VmRSS")
    seconds: list[float] = []
    results: Sequence[Any] = ()
    for _ in range(runs):
        results = ()
        start = time.perf_counter()
        results = session.run(None, inputs)
        seconds.append(time.perf_counter() - start)
    after = _kilobytes("VmHWM")
    growth = None if before is None or after is None else 1024 * (after - before)
    return {"growth_bytes": growth, "seconds": statistics.median(seconds[2:] or seconds), "digest": digest(results)}


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


def _load_files() -> None:
    """Make the pages of all mapped files resident now, where the system can (Linux from 5.14 on).

    Code becomes resident as it runs for the first time: some megabytes, whoever allocates how much. It belongs to the
    file and is shared and dropped like the rest of it, so that only memory without a file is left to grow.
    """
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        for line in Path("/proc/self/maps").read_text().splitlines():
            bounds, access, _, _, inode, *_ = line.split()
            if access[0] == "r" and inode != "0":
                start, stop = (int(bound, 16) for bound in bounds.split("-"))
                library.madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _POPULATE_READ)


def _kilobytes(field: str) -> int | None:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1])
    return None
