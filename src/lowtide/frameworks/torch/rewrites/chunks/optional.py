"""Chunks are an optimization: an error while looking for them leaves the program as it is."""

import warnings
from collections.abc import Callable
from typing import TypeVar

from lowtide.core.errors import one_line

Found = TypeVar("Found")


def found_or_none(search: Callable[[], Found]) -> Found | None:
    """Return the result of a search for chunks; None, with a warning to report the error, if it raises one."""
    try:
        return search()
    except Exception as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        warnings.warn(
            f"lowtide: chunks are left out, because looking for them failed: {reason}; report it", stacklevel=3
        )
        return None
