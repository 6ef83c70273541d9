"""Warnings of graphs that miss their budget, held back as long as it is not known what others of the program need."""

import warnings
from collections.abc import Generator
from contextlib import contextmanager

_held_back: list[list[str]] = []


def warn_missed(message: str) -> None:
    """Warn that a graph misses its budget, or leave that to whoever holds such warnings back."""
    if _held_back:
        _held_back[-1].append(message)
    else:
        warnings.warn(message, stacklevel=3)


@contextmanager
def missed_held_back() -> Generator[list[str]]:
    """Collect within what would be warned of."""
    _held_back.append(found := [])
    try:
        yield found
    finally:
        _held_back.pop()
