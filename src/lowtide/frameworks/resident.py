"""Measure the growth of this process's resident memory, which includes memory that programs do not count."""

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

_POPULATE_READ = 22


class ResidentGrowth:
    """Growth of resident memory since its creation."""

    def __init__(self, *, load_files: bool = True) -> None:
        """Release unused memory, so that it does not hide growth, and start measuring.

        With `load_files`, pages of mapped files are loaded first and not counted.
        """
        gc.collect()
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)
        if load_files:
            _load_files()
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # reset the high-water mark
        self._before = status_bytes("VmRSS")

    def highest_bytes(self) -> int | None:
        """Return the largest growth, or None if not reported."""
        after = self.resident_bytes()
        return None if self._before is None or after is None else after - self._before

    def resident_bytes(self) -> int | None:
        """Return the highest resident memory since the start, or None."""
        return status_bytes("VmHWM")


def _load_files() -> None:
    """Load the pages of all mapped files (Linux from 5.14 on), or code would become resident when it first runs."""
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        for line in Path("/proc/self/maps").read_text().splitlines():
            bounds, access, _, _, inode, *_ = line.split()
            if access[0] == "r" and inode != "0":
                start, stop = (int(bound, 16) for bound in bounds.split("-"))
                library.madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _POPULATE_READ)


def status_bytes(field: str) -> int | None:
    """Return a figure such as VmRSS, or None if not reported."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field):
                return 1024 * int(line.split()[1])
    return None
