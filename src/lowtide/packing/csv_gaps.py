"""The `gaps` column of a CSV text: when a buffer is not alive."""

import re

import numpy as np

from lowtide.packing.csv_numbers import MOST_STEPS, read_integer, shortened
from lowtide.packing.csv_records import CsvText, Records

_GAP = re.compile(r"([+-]?[0-9]+)-([+-]?[0-9]+)", re.ASCII)


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
            shown = f"gap {shortened(gap)!r}"
            if "@" in gap:
                why = "has a window of bytes, which lowtide does not model; leave the gap out, which is safe"
                raise text.error(start, f"{shown} {why}")
            match = _GAP.fullmatch(gap)
            first, last = (read_integer(match[1]), read_integer(match[2])) if match else (None, None)
            if first is None or last is None or max(abs(first), abs(last)) > MOST_STEPS:
                why = f"is not two steps of at most {MOST_STEPS} with a '-' between; write gaps like 3-5 8-9"
                raise text.error(start, f"{shown} {why}")
            if last < first:
                raise text.error(start, f"{shown} ends before it starts; put the earlier step first")
            rows.append([first_row + row, first, last + inclusive])
    return rows
