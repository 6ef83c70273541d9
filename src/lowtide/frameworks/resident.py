"""What this process's resident memory grows by: what a machine runs out of, beside the bytes that programs count."""

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

_POPULATE_READ = 22
"""MADV_POPULATE_READ, which Python has no name for."""


class ResidentGrowth:
    """How far resident memory rises above what it is now."""

    def __init__(self, *, load_files: bool = True) -> None:
        """Let go what can be let go, so that it does not hide what is measured, and begin here.

        Unless `load_files` is off, all pages of files become resident before, so that none of them is counted.
        """
        gc.collect()
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)
        if load_files:
            _load_files()
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the highest mark begins anew
        self._before = _bytes_of("VmRSS")

    def highest_bytes(self) -> int | None:
        """Return the most that was added at any time since; None where the system does not tell."""
        after = self.resident_bytes()
        return None if self._before is None or after is None else after - self._before

    def resident_bytes(self) -> int | None:
        """Return the most that the whole process had resident since; None where the system does not tell."""
        return _bytes_of("VmHWM")


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


def _bytes_of(field: str) -> int | None:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field):
                return 1024 * int(line.split()[1])
    return None
