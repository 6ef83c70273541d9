"""Files in and out: gzip-aware reading with a limit, writing that never leaves half a file."""

import gzip
import os
import tempfile
import zlib
from pathlib import Path

from lowtide.errors import InputError, MalformedInputError, UsageError

MOST_BYTES = 2**30
"""The largest file lowtide reads into memory, decompressed."""


def read_bytes(path: Path) -> bytes:
    """Return a file's content, decompressed when it is gzipped.

    Raises MalformedInputError for broken gzip, InputError for a missing, unreadable or oversized file.
    """
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if compressed else path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise MalformedInputError(f"{path}: broken gzip data ({error}); the file is truncated or damaged") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{path}: more than {MOST_BYTES} bytes decompressed; lowtide reads no larger files")
    return content


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file beside its place and rename it there, so that nobody ever sees half of it.

    A name that ends in .gz is compressed, without a time stamp, so that equal content gives equal files.
    Raises UsageError when the place cannot be written.
    """
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
