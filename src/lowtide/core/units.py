"""Byte counts as text: "8 GiB" to an int and back."""

import re
from collections.abc import Mapping, Sequence
from math import inf
from operator import index
from typing import SupportsIndex

from lowtide.core.errors import UsageError

_PREFIXES = "kmgt"
_FACTORS = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000 ** (power + 1) for power, prefix in enumerate(_PREFIXES)},
    **{f"{prefix}ib": 1024 ** (power + 1) for power, prefix in enumerate(_PREFIXES)},
    **{prefix: 1024 ** (power + 1) for power, prefix in enumerate(_PREFIXES)},
}
_QUANTITY = re.compile(r"\s*(\d{1,19}(?:\.\d{1,19})?)\s*([a-zA-Z]*)\s*", re.ASCII)
_MEANT = re.compile(r"\s*[\d.]+\s*([a-zA-Z]*)\s*", re.ASCII)
_BARE = re.compile(r"\s*\d{1,19}\s*", re.ASCII)
_BARE_WITH_POINT = re.compile(r"\s*\d{0,19}\.\d{1,19}\s*", re.ASCII)
_SHARE = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(%?)\s*", re.ASCII)


_EXAMPLES = "800MiB, 8GiB or 1048576"


def parse_bytes(text: str | SupportsIndex, examples: str = _EXAMPLES) -> int:
    """Convert "8 GiB", "512kB", "24G" or 1024 to bytes, rounded down.

    Units are B, kB to TB and KiB to TiB; K to T mean KiB to TiB. Raises UsageError for anything else.
    """
    if isinstance(text, SupportsIndex) and not isinstance(text, bool):  # also NumPy integers
        size = index(text)
        if size < 0:
            raise UsageError(f"size {size} is negative; give a number of bytes >= 0")
        return size
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    factor = _FACTORS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise UsageError(f"cannot read {text!r} as a size; write it like {examples}")
    whole, _, fraction = match[1].partition(".")
    return int(whole + fraction) * factor // 10 ** len(fraction)


def is_meant_as_size(text: str) -> bool:
    """Return whether a text is a number, with a unit of bytes or none, even if it cannot be read."""
    match = _MEANT.fullmatch(text)
    return match is not None and match[1].lower() in _FACTORS


def given_bytes(size: str | float | SupportsIndex) -> int:
    """Parse a user's size; raises UsageError for a bare number below 1 MiB, which usually lacks its unit."""
    if isinstance(size, float) or (isinstance(size, str) and _BARE_WITH_POINT.fullmatch(size)):
        number = float(size)
        if 2**20 <= number < inf:
            return int(number)
        if not 0 < number < inf:
            raise UsageError(f"cannot read {size!r} as a size; write it like {_EXAMPLES}")
        raise UsageError(f"{number:g} has no unit; write '{number:g}GiB'")
    check_unit(size, ("MiB", "GiB"))
    return parse_bytes(size)


def check_unit(size: object, units: Sequence[str]) -> None:
    """Raise UsageError for a bare number from 1 to 1 MiB; the message proposes `units`."""
    is_number = isinstance(size, SupportsIndex) and not isinstance(size, bool)
    if not is_number and not (isinstance(size, str) and _BARE.fullmatch(size)):
        return
    count = int(str(size))
    if 0 < count < 2**20:
        *first, last = (f"'{count}{unit}'" for unit in units)
        raise UsageError(f"{count} is {count} bytes; write {', '.join(first)} or {last}, or '{count}B' for bytes")


def exact_size(count: int) -> str:
    """Return a byte count as an exact option without spaces: 24GiB, 1536MiB or 1000B."""
    unit = next((prefix for prefix in "TGMK" if count and count % _FACTORS[f"{prefix.lower()}ib"] == 0), "")
    return f"{count // _FACTORS[f'{unit.lower()}ib']}{unit}iB" if unit else f"{count}B"


def parse_bandwidth(text: object) -> int:
    """Convert "12 GB/s" to bytes per second; raises UsageError for anything else."""
    amount, slash, second = text.rpartition("/") if isinstance(text, str) else ("", "", "")
    if not slash or second.strip().lower() != "s":
        raise UsageError(f"cannot read {text!r} as a bandwidth; write it like 12GB/s or 800MiB/s")
    return parse_bytes(amount)


def exact_bandwidth(bytes_per_s: int) -> str:
    """Return a speed as an exact option without spaces: 25GB/s or 1234567B/s."""
    size, unit = next(
        (size, unit) for size, unit in ((10**9, "GB"), (10**6, "MB"), (1, "B")) if bytes_per_s % size == 0
    )
    return f"{bytes_per_s // size}{unit}/s"


def parse_share(text: str | float) -> float:
    """Convert "1%" or 0.01 to 0.01; raises UsageError for anything else."""
    match = _SHARE.fullmatch(str(text))
    if match is None or isinstance(text, bool):
        raise UsageError(f"cannot read {text!r} as a share; write it like 1% or 0.01")
    return float(match[1]) / (100 if match[2] else 1)


_UNITS = ((2**30, "GiB", 2), (2**20, "MiB", 1), (2**10, "KiB", 1))
_LEAST_ROUNDED = 10 * 2**10


def format_bytes(count: int) -> str:
    """Return a byte count as text: 23.65 GiB, 299.4 MiB, 812.0 KiB or 2,048 B."""
    size, unit, digits = next((each for each in _UNITS if abs(count) >= max(each[0], _LEAST_ROUNDED)), (1, "B", 0))
    return f"{count / size:,.{digits}f} {unit}" if size > 1 else f"{count:,} B"


def percent(share: float, *, signed: bool = False) -> str:
    """Return a share as text with at most three digits: 0.42 %, 8.80 %, 47.6 %, 120 %."""
    size = abs(share)
    digits = 2 if size < 0.09995 else 1 if size < 0.9995 else 0
    return f"{100 * share:{'+' if signed else ''}.{digits}f} %"


def format_by_space(figures: Mapping[str, int]) -> str:
    """Return {space: bytes} as text; an only space is not named."""
    if len(figures) == 1:
        return format_bytes(next(iter(figures.values())))
    return ", ".join(f"{space} {format_bytes(count)}" for space, count in figures.items())
