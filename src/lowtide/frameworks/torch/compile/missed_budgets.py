"""Warnings of graphs that miss their budget, held back as long as it is not known what others of the program need."""

import math
import warnings
from collections.abc import Generator
from contextlib import contextmanager

from lowtide.units import format_bytes

_held_back: list[list[str]] = []


def warn_missed(message: str) -> None:
    """Warn that a graph misses its budget, or leave that to whoever holds such warnings back."""
    if _held_back:
        _held_back[-1].append(message)
    else:
        warnings.warn(message, stacklevel=3)


def reason(shortfall: str) -> str:
    """Return a shortfall without its end, which says what was reached as a part of a graph that nobody runs."""
    return shortfall.rpartition("; ")[0]


def least_reached(reached: int, alone: int, persistent: int) -> str:
    """Say what was reached, and which budgets it meets: bytes, parameters included, and a part of `alone`.

    `alone` is what the same program takes without lowtide.
    """
    share = f" or {math.ceil(reached * 10_000 / alone) / 100:.2f}%" if alone else ""
    met = f"a budget of {reached + persistent} bytes with parameters{share}"
    return f"the least reached is {format_bytes(reached)}, {met}"


@contextmanager
def missed_held_back() -> Generator[list[str]]:
    """Collect within what would be warned of."""
    _held_back.append(found := [])
    try:
        yield found
    finally:
        _held_back.pop()
