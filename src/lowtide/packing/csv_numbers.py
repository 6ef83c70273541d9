"""Columns of a CSV text to 64-bit integers."""

import re

import numpy as np
from numpy.typing import NDArray

from lowtide.packing.csv_records import CsvText, Records

MOST_STEPS = 2**62
"""Steps lie within plus and minus this, so that no difference of two overflows 64 bits."""
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_MOST_DIGITS = 18
"""Numbers of so many digits cannot overflow; longer ones are read one by one."""
_LONGEST_SHOWN = 40
_LIMIT = 2**63


def read_integer(text: str) -> int | None:
    """Return the number that a text is; None where it is no whole number of 64 bits."""
    text = text.strip(" \t")
    digits = text.lstrip("+-").lstrip("0")
    if not _INTEGER.fullmatch(text) or len(digits) > _MOST_DIGITS + 1:
        return None
    number = int(text[:1].strip("+0123456789") + (digits or "0"))
    return number if -_LIMIT <= number < _LIMIT else None


def read_integers(
    text: CsvText, records: Records, column: int, name: str, *, default: int | None = None
) -> NDArray[np.int64]:
    """Return a column of integers, `default` where a field is empty.

    O(bytes), in NumPy. Raises MalformedInputError, which names line and column, for what is no 64-bit integer, and for
    empty fields where there is no default.
    """
    starts, ends = records.starts[:, column], records.ends[:, column]
    data = np.frombuffer(text.content, np.uint8)
    lengths = ends - starts
    negative = (lengths > 0) & (data[np.minimum(starts, len(data) - 1)] == ord("-"))
    digits = lengths - negative
    sound = (digits > 0) & (digits <= _MOST_DIGITS)
    numbers = np.zeros(len(starts), np.int64)
    for place in range(int(digits[sound].max(initial=0))):
        here = sound & (place < digits)
        digit = data[np.where(here, starts + negative + place, 0)].astype(np.int64) - ord("0")
        sound &= ~here | ((digit >= 0) & (digit <= 9))
        numbers = np.where(here, numbers * 10 + digit, numbers)
    numbers = np.where(negative, -numbers, numbers)
    for row in np.flatnonzero(~sound).tolist():
        start, end = int(starts[row]), int(ends[row])
        field = text.field(start, end, bool(records.quoted[row, column]))
        number = default if not field.strip(" \t") else read_integer(field)
        if number is None:
            raise text.error(start, f"{name} is {shortened(field)!r}; give a whole number that fits 64 bits")
        numbers[row] = number
    return numbers


def shortened(field: str) -> str:
    """Return what a message can show of a field."""
    return field if len(field) <= _LONGEST_SHOWN else f"{field[:_LONGEST_SHOWN]}..."
