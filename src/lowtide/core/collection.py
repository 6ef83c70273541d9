"""Python's cyclic garbage collector, kept out of where millions of objects are made that form no cycles."""

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Generator[None]:
    """Pause the collector, which else looks at all living objects again and again while many more are made.

    It serves as a decorator, too. Nested, only the outermost one has an effect.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
