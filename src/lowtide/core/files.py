"""Files in and out: gzip-aware reading with a limit, writing that never leaves half a file."""

import gzip
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

from lowtide.core.errors import InputError, MalformedInputError, UsageError, WriteError

MOST_BYTES = 2**30
"""The largest file lowtide reads into memory, decompressed."""
_BLOCK_BYTES = 2**20
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""A pipe opens without a writer, and Windows changes no line ends; each system lacks one of the two."""


def path_of(given: object) -> Path:
    """Return what a user gave as a path; raises UsageError for what is none."""
    if not isinstance(given, str | os.PathLike):
        raise UsageError(f"a {type(given).__name__} is no path; give the name of a file or folder")
    return Path(os.fsdecode(cast("str | os.PathLike[str]", given)))


def read_bytes(path: Path) -> bytes:
    """Return a file's content, decompressed when it is gzipped; raises what `read_blocks` raises."""
    return b"".join(read_blocks(path))


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield a file's content piece by piece, decompressed when it is gzipped.

    Raises MalformedInputError for broken gzip, InputError for a missing, unreadable or oversized file.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_BYTES:
            raise _too_large(path)
        yield from _decompressed(file, path)


def read_stdin() -> bytes:
    """Return what stands on stdin to its end, decompressed when it is gzipped; raises what `read_blocks` raises."""
    file: Any = sys.stdin.buffer
    return b"".join(_decompressed(file, "stdin"))


def _decompressed(file: BufferedReader, where: Path | str) -> Iterator[bytes]:
    total = 0
    try:
        compressed = file.peek(2)[:2] == b"\x1f\x8b"
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
    """Open a file for reading; raises InputError for what is none: a pipe or a device could wait for ever."""
    try:
        handle = os.open(path, _READ)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return os.fdopen(handle, "rb")
        os.close(handle)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {_reason(error)}") from None
    raise InputError(f"cannot read {path}: it is no regular file; save what it gives to a file first")


def check_writable(path: Path) -> None:
    """Raise UsageError for a path that cannot become a file: a folder or device, in no folder, not permitted."""
    try:
        taken = not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        taken = False
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write {path}: {_reason(error)}") from None
    if taken:
        raise UsageError(f"cannot write {path}: it is no file; name a new one, or a file to replace")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write {path}: no permission to write in {path.parent}")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file beside its place and rename it there, so that nobody ever sees half of it.

    A name that ends in .gz is compressed, without a time stamp, so that equal content gives equal files. Where a
    symbolic link stands, its target is replaced. Raises WriteError when the place cannot be written.
    """
    write_long(path, [content])


def write_long(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file piece by piece, as `write_bytes` does."""
    write_pieces(path, _compressed(pieces) if path.suffix == ".gz" else pieces)


def write_pieces(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file piece by piece, as `write_bytes` does, without joining or compressing them."""
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
    compressor = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)  # 16: with gzip's header, which gets no time stamp
    for piece in pieces:
        yield compressor.compress(piece)
    yield compressor.flush()


def _too_large(path: Path | str) -> InputError:
    return InputError(f"{path}: more than {MOST_BYTES} bytes decompressed; lowtide reads no larger files")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
