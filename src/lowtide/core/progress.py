"""What a long computation says while it works."""

from collections.abc import Callable
from typing import TypeAlias

Report: TypeAlias = Callable[[str], None]
"""Takes one line about the stage that starts now."""


def silent(_stage: str) -> None:
    """Say nothing."""
