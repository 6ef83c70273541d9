"""Progress messages of long computations."""

from collections.abc import Callable
from typing import TypeAlias

Report: TypeAlias = Callable[[str], None]
"""A callback that gets one line about the stage that starts."""


def silent(_stage: str) -> None:
    """Ignore the message."""
