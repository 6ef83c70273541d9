"""The columns of a CSV file of buffers: their names, and what their fields may hold."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.packing.buffers import FREE
from lowtide.packing.csv_gaps import read_gaps
from lowtide.packing.csv_numbers import MOST_STEPS, read_integers, shortened
from lowtide.packing.csv_records import CsvText, Records

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
        first, last = (
            read_integers(self.text, records, self.places[end], self._name(end)) for end in ("first", "last")
        )
        for end, steps in (("first", first), ("last", last)):
            why = f"a step lies within plus and minus {MOST_STEPS}"
            self._refuse(records, end, steps, (steps < -MOST_STEPS) | (steps > MOST_STEPS), why)
        self._refuse(records, "last", last, last < first, f"the live range ends before its {self._name('first')}")
        return first, last + self.inclusive

    def sizes(self, records: Records) -> NDArray[np.int64]:
        """Return bytes. Raises MalformedInputError for negative ones."""
        sizes = read_integers(self.text, records, self.places["size"], "size")
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
        return read_gaps(self.text, records, self.places["gaps"], first_row, self.inclusive)

    def _name(self, meaning: str) -> str:
        return self.names[self.places[meaning]]

    def _optional(self, records: Records, meaning: str, default: int) -> NDArray[np.int64]:
        if meaning not in self.places:
            return np.full(len(records.starts), default)
        return read_integers(self.text, records, self.places[meaning], meaning, default=default)

    def _refuse(
        self, records: Records, meaning: str, values: NDArray[np.int64], wrong: NDArray[np.bool_], why: str
    ) -> None:
        for row in np.flatnonzero(wrong)[:1].tolist():
            start = int(records.starts[row, self.places[meaning]])
            raise self.text.error(start, f"{self._name(meaning)} is {values[row]}; {why}")
