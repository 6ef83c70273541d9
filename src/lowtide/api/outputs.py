"""Files that a command writes: never one over another or over what it reads, and what took long is never lost."""

import tempfile
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path

from lowtide.core.errors import LowtideError, UsageError, WriteError

Files = Mapping[str, str | Path | None]
"""Files by what the command line calls them: "MODEL", "-o". None and names of no file are none."""


def check_separate(inputs: Files, outputs: Files, *, force: bool) -> None:
    """Raise UsageError where two outputs are one file, or, unless `force`, where an output is an input's file.

    Links are followed.
    """
    for (one, first), (other, second) in combinations(outputs.items(), 2):
        if _same_file(first, second):
            raise UsageError(f"{one} and {other} both name {first}; give two files")
    for option, output in outputs.items():
        for name, source in inputs.items():
            if not force and _same_file(source, output):
                raise UsageError(f"{option} {output} would replace {name}; give another name, or --force to replace it")


def save(path: Path, write: Callable[[Path], None], rescue: Callable[[Path], Path] | None = None) -> None:
    """Write a result to a path; where that fails, to a folder of its own among temporary files, and say so.

    `rescue` writes there instead of `write`: it takes that folder and returns the file. Raises WriteError.
    """
    try:
        to_the_end(lambda: write(path))
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
        raise WriteError(f"{error}; so that it is not lost, it was written to {second}") from None


def to_the_end(write: Callable[[], None]) -> None:
    """Write a result even where Ctrl-C comes meanwhile: what took minutes to plan is not lost. Then it counts."""
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
        return False  # no such file can be, as whoever opens it says
