"""Check output files, and write results without losing them."""

import tempfile
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path

from lowtide.core.errors import LowtideError, UsageError, WriteError

Files = Mapping[str, str | Path | None]
"""Files by command-line name ("MODEL", "-o"). None and names that are no files are ignored."""


def check_separate(inputs: Files, outputs: Files, *, force: bool) -> None:
    """Raise UsageError if two outputs are one file or, unless `force`, an output is an input. Follows links."""
    for (one, first), (other, second) in combinations(outputs.items(), 2):
        if _same_file(first, second):
            raise UsageError(f"{one} and {other} both name {first}; give two files")
    for option, output in outputs.items():
        for name, source in inputs.items():
            if not force and _same_file(source, output):
                raise UsageError(f"{option} {output} would replace {name}; give another name, or --force to replace it")


def save(path: Path, write: Callable[[Path], None], rescue: Callable[[Path], Path] | None = None) -> None:
    """Write a result; if that fails, write it to a new temporary folder, named in the WriteError.

    `rescue` then writes to that folder instead, and returns the file.
    """
    try:
        write_completely(lambda: write(path))
    except WriteError as error:
        try:
            folder = Path(tempfile.mkdtemp(prefix="lowtide."))
            second = folder / path.name
            if rescue is None:
                write(second)
            else:
                second = rescue(folder)
        except (LowtideError, OSError):
            raise error from None
        raise WriteError(f"{error}; saved to {second} instead") from None


def write_completely(write: Callable[[], None]) -> None:
    """Write a result completely; KeyboardInterrupt is raised afterwards."""
    try:
        write()
    except KeyboardInterrupt:
        write()
        raise


def _same_file(one: str | Path | None, other: str | Path | None) -> bool:
    if one is None or other is None:
        return False
    first, second = Path(one), Path(other)
    try:
        return first.resolve() == second.resolve() or (first.exists() and second.exists() and first.samefile(second))
    except (OSError, ValueError, RuntimeError):
        return False  # not a valid file name
