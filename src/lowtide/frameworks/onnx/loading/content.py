"""The bytes of model files: mapped, never read as a whole."""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lowtide.errors import InputError, one_line


@contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    """Give a file's bytes; only the pages that are looked at are loaded, and the system may drop them at any time.

    Raises InputError for a file that cannot be read.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                yield memoryview(b"")
                return
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {one_line(error)}") from None
    with pages, memoryview(pages) as content:
        yield content
