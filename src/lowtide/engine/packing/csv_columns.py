"""The columns of a CSV file of buffers: their names, and what their fields may hold."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.packing.buffers import FREE
from lowtide.engine.packing.csv_text import CsvText, Records

_SPELLINGS = {
    "id": ("id", "buffer", "buffer_id"),
    "first": ("lower", "start", "begin"),
    "last": ("upper", "end"),
    "size": ("size",),
    "alignment": ("alignment",),
    "offset": ("offset",),
    "hint": ("hint",),
    "gaps": ("gaps",),
}
_INCLUSIVE = "end"
_REQUIRED = ("id", "first", "last", "size")
_MEANINGS = {spelling: meaning for meaning, spellings in _SPELLINGS.items() for spelling in spellings}
_MOST_STEPS = 2**62
"""Steps lie within plus and minus this, so that no difference of two overflows 64 bits."""
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_MOST_DIGITS = 18
"""Numbers of so many digits cannot overflow; longer ones are read one by one."""
_LONGEST_SHOWN = 40
_LIMIT = 2**63
_GAP = re.compile(r"([+-]?[0-9]{1,19})-([+-]?[0-9]{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Columns:
    """Where each column stands, by what it means, and what the header calls it."""

    text: CsvText
    names: tuple[str, ...]
    places: dict[str, int]

    @classmethod
    def of(cls, text: CsvText, header: Records) -> "Columns":
        """Read the line of names, the first of the records.

        Raises MalformedInputError for names that are unknown, missing or given twice.
        """
        start = int(header.starts[0, 0])
        fields = zip(header.starts[0].tolist(), header.ends[0].tolist(), header.quoted[0].tolist(), strict=True)
        names = tuple(text.field(*field).strip(" \t") for field in fields)
        places: dict[str, int] = {}
        for place, name in enumerate(names):
            meaning = _MEANINGS.get(name)
            if meaning is None:
                known = ", ".join(_MEANINGS)
                raise text.error(start, f"unknown column {shortened(name)!r}; the columns known are {known}")
            if meaning in places:
                raise text.error(
                    start, f"columns {names[places[meaning]]!r} and {name!r} say the same; give only one of them"
                )
            places[meaning] = place
        for meaning in _REQUIRED:
            if meaning not in places:
                raise text.error(start, f"there is no column {' or '.join(map(repr, _SPELLINGS[meaning]))}; add one")
        return cls(text, names, places)

    @property
    def inclusive(self) -> bool:
        """Whether live ranges and gaps contain the step they end with."""
        return self.names[self.places["last"]] == _INCLUSIVE

    def ids(self, records: Records) -> list[str]:
        """Return the names of the buffers. Raises MalformedInputError for an empty one."""
        place = self.places["id"]
        columns = (part[:, place].tolist() for part in (records.starts, records.ends, records.quoted))
        fields = list(zip(*columns, strict=True))
        names = [self.text.field(*field) for field in fields]
        if "" in names:
            raise self.text.error(fields[names.index("")][0], "the id is empty; give every buffer a name")
        return names

    def live_ranges(self, records: Records) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first step and the one behind the last. Raises MalformedInputError for what is no range."""
        first, last = (_integers(self.text, records, self.places[end], self._name(end)) for end in ("first", "last"))
        for end, steps in (("first", first), ("last", last)):
            why = f"a step lies within plus and minus {_MOST_STEPS}"
            self._refuse(records, end, steps, (steps < -_MOST_STEPS) | (steps > _MOST_STEPS), why)
        self._refuse(records, "last", last, last < first, f"the live range ends before its {self._name('first')}")
        return first, last + self.inclusive

    def sizes(self, records: Records) -> NDArray[np.int64]:
        """Return bytes. Raises MalformedInputError for negative ones."""
        sizes = _integers(self.text, records, self.places["size"], "size")
        self._refuse(records, "size", sizes, sizes < 0, "give bytes >= 0")
        return sizes

    def alignments(self, records: Records) -> NDArray[np.int64]:
        """Return alignments, 1 where the field is empty or the column missing. Raises MalformedInputError below 1."""
        alignments = self._optional(records, "alignment", 1)
        self._refuse(records, "alignment", alignments, alignments < 1, "give bytes >= 1, or nothing")
        return alignments

    def fixed(self, records: Records, alignments: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return fixed offsets, FREE where there is none. Raises MalformedInputError for negative or unaligned ones."""
        unset = np.iinfo(np.int64).min
        offsets = self._optional(records, "offset", unset)
        given = offsets != unset
        self._refuse(records, "offset", offsets, given & (offsets < 0), "give bytes >= 0, or nothing for a free buffer")
        crooked = given & (offsets % alignments != 0)
        self._refuse(records, "offset", offsets, crooked, "it is no multiple of the alignment; change one of the two")
        return np.where(given, offsets, FREE)

    def hints(self, records: Records) -> NDArray[np.int64]:
        """Return hints, FREE where there is none: an empty field or a negative figure."""
        return np.maximum(self._optional(records, "hint", FREE), FREE)

    def gaps(self, records: Records, first_row: int) -> list[list[int]]:
        """Return rows (buffer, first, last), half-open. Raises MalformedInputError for what is no gap."""
        if "gaps" not in self.places:
            return []
        return _gaps(self.text, records, self.places["gaps"], first_row, self.inclusive)

    def _name(self, meaning: str) -> str:
        return self.names[self.places[meaning]]

    def _optional(self, records: Records, meaning: str, default: int) -> NDArray[np.int64]:
        if meaning not in self.places:
            return np.full(len(records.starts), default)
        return _integers(self.text, records, self.places[meaning], meaning, default=default)

    def _refuse(
        self, records: Records, meaning: str, values: NDArray[np.int64], wrong: NDArray[np.bool_], why: str
    ) -> None:
        for row in np.flatnonzero(wrong)[:1].tolist():
            start = int(records.starts[row, self.places[meaning]])
            raise self.text.error(start, f"{self._name(meaning)} is {values[row]}; {why}")


def _integer(text: str) -> int | None:
    """Return the number that a text is; None where it is no whole number of 64 bits."""
    text = text.strip(" \t")
    digits = text.lstrip("+-").lstrip("0")
    if not _INTEGER.fullmatch(text) or len(digits) > _MOST_DIGITS + 1:
        return None
    number = int(text[:1].strip("+0123456789") + (digits or "0"))
    return number if -_LIMIT <= number < _LIMIT else None


def _integers(
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
        number = default if not field.strip(" \t") else _integer(field)
        if number is None:
            raise text.error(start, f"{name} is {shortened(field)!r}; give a whole number that fits 64 bits")
        numbers[row] = number
    return numbers


def shortened(field: str) -> str:
    """Return what a message can show of a field."""
    return field if len(field) <= _LONGEST_SHOWN else f"{field[:_LONGEST_SHOWN]}..."


def _gaps(text: CsvText, records: Records, column: int, first_row: int, inclusive: bool) -> list[list[int]]:
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
            if not -_MOST_STEPS <= first <= last <= _MOST_STEPS:
                raise text.error(
                    start, _complaint(gap) if first <= last else f"gap {gap!r} ends before it starts; swap its steps"
                )
            rows.append([first_row + row, first, last + inclusive])
    return rows


def _complaint(gap: str) -> str:
    if "@" in gap:
        why = "has a window of bytes, which lowtide does not model; leave the gap out, which is safe"
    else:
        why = f"is not two steps of at most {_MOST_STEPS} with a '-' between; write gaps like 3-5 8-9"
    return f"gap {shortened(gap)!r} {why}"
