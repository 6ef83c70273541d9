"""The `gaps` column of a CSV text: when a buffer is not alive."""

import re

import numpy as np

from lowtide.packing.csv_numbers import MOST_STEPS, shortened
from lowtide.packing.csv_records import CsvText, Records

_GAP = re.compile(r"([+-]?[0-9]{1,19})-([+-]?[0-9]{1,19})", re.ASCII)


def read_gaps(text: CsvText, records: Records, column: int, first_row: int, inclusive: bool) -> list[list[int]]:
    """Return rows (buffer, first, last), half-open, of fields like "3-5 8-9"; buffers count from `first_row`.

    `inclusive` says that the second step of a gap belongs to it. Raises MalformedInputError, which names the line, for
    anything else.
    """
    rows: list[list[int]] = []
    starts, ends = records.starts[:, column], records.ends[:, column]
    for row in np.flatnonzero(starts < ends).tolist():
        start = int(starts[row])
        for gap in text.field(start, int(ends[row]), bool(records.quoted[row, column])).split():
            match = _GAP.fullmatch(gap)
            if match is None:
                raise text.error(start, _complaint(gap))
            first, last = int(match[1]), int(match[2])
            if not -MOST_STEPS <= first <= last <= MOST_STEPS:
                raise text.error(
                    start, _complaint(gap) if first <= last else f"gap {gap!r} ends before it starts; swap its steps"
                )
            rows.append([first_row + row, first, last + inclusive])
    return rows


def _complaint(gap: str) -> str:
    if "@" in gap:
        why = "has a window of bytes, which lowtide does not model; leave the gap out, which is safe"
    else:
        why = f"is not two steps of at most {MOST_STEPS} with a '-' between; write gaps like 3-5 8-9"
    return f"gap {shortened(gap)!r} {why}"
