"""Lifetime classes: from when to when a buffer exists, whatever the order."""

from enum import IntEnum


class Lifetime(IntEnum):
    """The lifetime class of a buffer; the numbers are shared with the native kernels."""

    PERSISTENT = 0
    """Exists before, during and after; reported apart from the peak (weights, optimizer state)."""
    INPUT = 1
    """Exists from the start and stays: the caller still owns it."""
    DONATED = 2
    """Exists from the start and is freed after its last use: the caller gave it away."""
    INTERMEDIATE = 3
    """Allocated by its first writer, freed after its last use."""
    OUTPUT = 4
    """Allocated by its first writer, lives to the end."""

    @property
    def persistent(self) -> bool:
        """Whether the buffer is there throughout and reported apart from the peak."""
        return self is Lifetime.PERSISTENT

    @property
    def exists_at_start(self) -> bool:
        """Whether the buffer is there before the first op runs."""
        return self <= Lifetime.DONATED

    @property
    def freeable(self) -> bool:
        """Whether a plan may free the buffer after its last use."""
        return self in (Lifetime.DONATED, Lifetime.INTERMEDIATE)
