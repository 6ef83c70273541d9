"""Limited reading, atomic writing."""

import gzip
import mmap
import os
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

from lowtide.core.errors import InputError, MalformedInputError, UsageError, WriteError, named_type

MOST_BYTES = 2**30
"""Decompressed size of the largest readable file."""
_BLOCK_BYTES = 2**20
_GZIP = b"\x1f\x8b"
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Do not block on pipes, and keep line ends on Windows."""


def path_of(given: object) -> Path:
    """Return a path; raises UsageError for other types."""
    if not isinstance(given, str | os.PathLike):
        raise UsageError(f"{named_type(given)} is not a path; give the name of a file or folder")
    return Path(os.fsdecode(cast("str | os.PathLike[str]", given)))


def read_bytes(path: Path) -> bytes:
    return b"".join(read_blocks(path))


def mapped_bytes(path: Path) -> memoryview:
    """Return a file's content, loaded on access unless gzipped; see `read_blocks`."""
    with open_regular(path) as file:
        if file.peek(2)[:2] == _GZIP:
            return memoryview(read_bytes(path))
        try:
            is_empty = os.fstat(file.fileno()).st_size == 0  # an empty file cannot be mapped
            return memoryview(b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {path}: {_reason(error)}") from None


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield a file's content in blocks, decompressed if gzipped.

    Raises MalformedInputError for broken gzip data, InputError for an unreadable or oversized file.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_BYTES:
            raise _too_large(path)
        yield from _decompressed(file, path)


def read_stdin() -> bytes:
    file: Any = sys.stdin.buffer
    return b"".join(_decompressed(file, "stdin"))


def _decompressed(file: BufferedReader, where: Path | str) -> Iterator[bytes]:
    total = 0
    try:
        compressed = file.peek(2)[:2] == _GZIP
        with gzip.open(file) if compressed else nullcontext(file) as content:
            while block := content.read(_BLOCK_BYTES):
                total += len(block)
                if total > MOST_BYTES:
                    raise _too_large(where)
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise MalformedInputError(f"{where}: broken gzip data ({error}); the file is truncated or damaged") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {where}: {_reason(error)}") from None


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading; raises InputError for pipes and devices."""
    try:
        handle = os.open(path, _READ)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return os.fdopen(handle, "rb")
        os.close(handle)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {_reason(error)}") from None
    raise InputError(f"cannot read {path}: not a regular file; save its content to a file first")


def check_writable(path: Path) -> None:
    """Raise UsageError if a path cannot be written."""
    try:
        is_special = not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        is_special = False
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write {path}: {_reason(error)}") from None
    if is_special:
        raise UsageError(f"cannot write {path}: not a regular file; name a new file or one to replace")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {path.parent}; create it first")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write {path}: no permission to write in {path.parent}")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically, gzipped for .gz; raises WriteError.

    Equal content gives equal files. The target of a symbolic link is replaced.
    """
    write_long(path, [content])


def write_long(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file from pieces as `write_bytes` does."""
    write_pieces(path, _compressed(pieces) if path.suffix == ".gz" else pieces)


def write_pieces(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write pieces as `write_long` does, but uncompressed."""
    try:
        check_writable(path)
    except UsageError as error:
        raise WriteError(str(error)) from None
    temporary: str | None = None
    try:
        path = path.resolve()
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".lowtide.")
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        temporary = None
    except (OSError, ValueError, RuntimeError) as error:
        raise WriteError(f"cannot write {path}: {_reason(error)}") from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    compressor = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)  # 16: gzip header, without a time stamp
    for piece in pieces:
        yield compressor.compress(piece)
    yield compressor.flush()


def _too_large(path: Path | str) -> InputError:
    return InputError(f"{path}: more than {MOST_BYTES} bytes decompressed; larger files are not supported")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
