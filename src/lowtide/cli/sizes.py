"""Sizes on the command line."""

import click

from lowtide.core.errors import UsageError
from lowtide.core.units import parse_bytes

MOST_BYTES = 2**62
"""No size given on the command line is larger."""


def parse_size(_ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """Read an option's value as bytes, "8GiB"; raises UsageError."""
    if text is None:
        return None
    size = parse_bytes(text)
    if size > MOST_BYTES:
        option = (param.name or "").replace("_", "-")
        raise UsageError(f"--{option} {text} is too large; give at most {MOST_BYTES} bytes")
    return size
