"""The counting allocator that ONNX Runtime is given to find out how much a run really holds."""

import ctypes
from functools import cache
from pathlib import Path

from lowtide import _native
from lowtide.errors import UnsupportedError


class CountingAllocator:
    """Live and peak bytes of the sessions that were opened with it; there is one per process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        for name in ("lowtide_live_bytes", "lowtide_peak_bytes"):
            getattr(self._library, name).restype = ctypes.c_int64

    @property
    def live_bytes(self) -> int:
        """Bytes allocated and not freed."""
        return self._library.lowtide_live_bytes()

    @property
    def peak_bytes(self) -> int:
        """The largest `live_bytes` since the last restart."""
        return self._library.lowtide_peak_bytes()

    def restart_peak(self) -> None:
        """Begin a new peak at what is live now."""
        self._library.lowtide_restart_peak()


@cache
def counting_allocator() -> CountingAllocator:
    """Return the allocator, which lies beside the native kernels; raises UnsupportedError where it was not built."""
    path = Path(_native.__file__).with_name("onnxruntime_allocator.so")
    if not path.is_file():
        raise UnsupportedError(f"{path} was not built, so ONNX models cannot be measured; install lowtide again")
    return CountingAllocator(path)
