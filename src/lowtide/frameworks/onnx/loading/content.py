"""The bytes of model files: mapped, never read as a whole."""

import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from lowtide.core.errors import InputError, one_line
from lowtide.core.files import open_regular

_PART_BYTES = 2**22


def mapped(path: Path) -> memoryview:
    """Return a file's bytes; only pages that are looked at are loaded, and the system may drop them at any time.

    The file stays open as long as the result or a part of it is there. Raises InputError for what cannot be read or is
    no file.
    """
    with open_regular(path) as file:
        try:
            if os.fstat(file.fileno()).st_size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {path}: {one_line(error)}") from None


def drained(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the same bytes in parts of bounded size; pages of mapped files are given back once they are written."""
    for piece in pieces:
        pages = piece.obj if isinstance(piece, memoryview) else None
        for start in range(0, max(len(piece), 1), _PART_BYTES):
            yield piece[start : start + _PART_BYTES]
            if isinstance(pages, mmap.mmap) and len(piece) > _PART_BYTES and hasattr(mmap, "MADV_DONTNEED"):
                pages.madvise(mmap.MADV_DONTNEED)
