"""Environment variables that other packages read while they load."""

import os
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def environment_with(name: str, value: str) -> Generator[None]:
    """Set a variable meanwhile, and restore it afterwards."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
