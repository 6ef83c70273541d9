"""Pausing Python's cyclic garbage collector."""

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Generator[None]:
    """Pause the collector, also as a decorator; only the outermost of nested pauses has an effect."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
