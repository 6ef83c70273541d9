"""Interface to the native allocator."""

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.errors import UnsupportedError

OUTSIDE = -1
"""Offset of allocations outside the arena, which outlive their run. Lower offsets lend pages from place `OUTSIDE - 1 -
offset` on."""

DEVIATIONS = ("", "arena in use", "other size", "more allocations", "address in use")
"""Why a run stopped using its addresses, as numbered by the library."""

_POINTERS = (*("lowtide_allocate", "lowtide_arena_create", "lowtide_addresses_create", "lowtide_run_begin"),)
_NUMBERS = (
    *("lowtide_live_bytes", "lowtide_peak_bytes", "lowtide_block_bytes", "lowtide_whole_pages"),
    *("lowtide_arena_bytes", "lowtide_arena_live_blocks", "lowtide_arena_trim", "lowtide_run_finish"),
)
_POINTERS_OF_RUNS = {"lowtide_run_end": 1, "lowtide_run_report": 2, "lowtide_run_recorded": 2, "lowtide_run_finish": 1}


class NativeAllocator:
    """The allocator of the process, which counts for all runtimes that use it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path))
        for name in _POINTERS:
            getattr(self.library, name).restype = ctypes.c_void_p
        for name in _NUMBERS:
            getattr(self.library, name).restype = ctypes.c_int64
        for name, count in _POINTERS_OF_RUNS.items():
            getattr(self.library, name).argtypes = (ctypes.c_void_p,) * count

    @property
    def live_bytes(self) -> int:
        return self.library.lowtide_live_bytes()

    @property
    def peak_bytes(self) -> int:
        """The largest `live_bytes` since the last restart."""
        return self.library.lowtide_peak_bytes()

    def restart_peak(self) -> None:
        self.library.lowtide_restart_peak()

    def block_bytes(self, size: int) -> int:
        """Return the bytes that a block of this size occupies in an arena."""
        return self.library.lowtide_block_bytes(ctypes.c_int64(size))

    def whole_pages(self, size: int) -> int:
        return self.library.lowtide_whole_pages(ctypes.c_int64(size))


@cache
def native_allocator() -> NativeAllocator:
    """Return the allocator; raises UnsupportedError if it was not built."""
    path = Path(_native.__file__).with_name("arena_allocator.so")
    if not path.is_file():
        raise UnsupportedError(f"{path} was not built, so memory is neither counted nor placed; reinstall lowtide")
    return NativeAllocator(path)


class _Owned:
    def __init__(self, allocator: NativeAllocator, handle: int, destroy: Callable[[Any], None]) -> None:
        self.allocator = allocator
        self.handle = ctypes.c_void_p(handle)
        self._destroy = destroy

    def __del__(self) -> None:
        self._destroy(self.handle)


class Arena(_Owned):
    """A memory region for the blocks of runs, alive until the last block is freed."""

    def __init__(self, allocator: NativeAllocator) -> None:
        library = allocator.library
        super().__init__(allocator, library.lowtide_arena_create(), library.lowtide_arena_destroy)

    @property
    def size_bytes(self) -> int:
        """The largest size that any run has requested."""
        return self.allocator.library.lowtide_arena_bytes(self.handle)

    @property
    def live_blocks(self) -> int:
        return self.allocator.library.lowtide_arena_live_blocks(self.handle)

    def trim(self) -> bool:
        """Return its pages to the system until the next run, unless in use; return whether it did."""
        return bool(self.allocator.library.lowtide_arena_trim(self.handle))


class RunAddresses(_Owned):
    def __init__(
        self, allocator: NativeAllocator, sizes: NDArray[np.int64], offsets: NDArray[np.int64], arena_bytes: int
    ) -> None:
        """See `OUTSIDE` for negative offsets."""
        columns = [np.ascontiguousarray(column, np.int64) for column in (sizes, offsets)]
        pointers = [column.ctypes.data_as(ctypes.c_void_p) for column in columns]
        library = allocator.library
        handle = library.lowtide_addresses_create(ctypes.c_int64(len(sizes)), *pointers, ctypes.c_int64(arena_bytes))
        super().__init__(allocator, handle, library.lowtide_addresses_destroy)
        self.sizes, self.offsets, self.arena_bytes = *columns, arena_bytes

    @property
    def outliving_bytes(self) -> int:
        return sum(self.allocator.block_bytes(size) for size in self.sizes[self.offsets == OUTSIDE].tolist())


class RunReport(NamedTuple):
    allocations: int
    served: int
    deviation: str


_REPORT = ctypes.c_int64 * 3


class ArenaRun:
    """The allocations of this thread until `end` or `finish`: recorded without addresses, placed with them."""

    __slots__ = ("_handle", "_library")

    def __init__(self, arena: Arena, addresses: RunAddresses | None) -> None:
        self._library = arena.allocator.library
        planned = None if addresses is None else addresses.handle
        self._handle: int | None = self._library.lowtide_run_begin(arena.handle, planned)

    def end(self) -> RunReport:
        """Restore ordinary allocation and return the report. Call it on the thread that started the run."""
        self._library.lowtide_run_end(self._handle)
        report = _REPORT()
        self._library.lowtide_run_report(self._handle, report)
        allocations, served, deviation = report
        return RunReport(allocations, served, DEVIATIONS[deviation])

    def recorded(self, n_allocations: int) -> NDArray[np.int64]:
        """Return rows of bytes and the events of allocation and free, -1 for blocks that outlive the run."""
        rows = np.empty((n_allocations, 3), np.int64)
        self._library.lowtide_run_recorded(self._handle, rows.ctypes.data_as(ctypes.c_void_p))
        return rows

    def finish(self) -> str:
        """End and destroy the run in one call, for the fast path; return its deviation."""
        handle, self._handle = self._handle, None
        deviation: int = self._library.lowtide_run_finish(handle)
        return DEVIATIONS[deviation]

    def __del__(self) -> None:
        if self._handle is not None:
            self._library.lowtide_run_finish(self._handle)
