"""Buffers as CSV files in the format of google/minimalloc."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import MalformedInputError
from lowtide.core.files import read_bytes, write_bytes
from lowtide.engine.packing.buffers import FREE, Buffers, Ints

MOST_RECORD_BYTES = 2**17
"""Longest record, and longest field for `csv`."""
_ROWS_AT_ONCE = 2**16
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
"""Largest step, so that differences fit 64 bits."""
_LIMIT = 2**63
_LONGEST_SHOWN = 40
_BLANKS = " \t"
_INTEGER = re.compile(r"[ \t]*([+-]?)0*([0-9]{1,19})[ \t]*", re.ASCII)
_GAP = re.compile(r"([+-]?[0-9]{1,19})-([+-]?[0-9]{1,19})", re.ASCII)
_FIELD = r'(?:"(?:[^"]|"")*+"|[^",]*+)'
_SOUND_QUOTES = re.compile(f"{_FIELD}(?:,{_FIELD})*+")
_STRAY_QUOTE = "a quote inside an unquoted field; quote the field and double its quotes"
_CSV_ERRORS = {
    "expected after": _STRAY_QUOTE,
    "new-line character": "a carriage return inside an unquoted field; use LF or CRLF line ends",
}


@dataclass(frozen=True, slots=True, eq=False)
class BufferFile:
    """The buffers of a CSV file, with its content."""

    buffers: Buffers
    """In file order, with half-open live ranges."""
    content: bytes
    where: str
    offset_column: int | None


class _Record(NamedTuple):
    line: int
    text: str
    fields: list[str]


def read_buffer_file(path: Path) -> BufferFile:
    """Read a CSV file, gzipped or not, with one buffer per line.

    Columns in any order: `id`, `size` in bytes, `lower` and `upper` (half-open) or `start` and `end` (inclusive), and
    optionally `alignment`, `offset` (fixed), `hint` and `gaps`. Raises InputError for an unreadable file,
    MalformedInputError with the line number for a malformed one.
    """
    return parse_buffers(read_bytes(path), str(path))


def parse_buffers(content: bytes, where: str) -> BufferFile:
    """Parse a CSV file's content, called `where` in messages; raises MalformedInputError."""
    records = _records(content, where)
    header = next(records, None)
    if header is None:
        raise MalformedInputError(f"{where}: it is empty; give a line of column names and one line per buffer")
    columns = _Columns(header, where)
    line_of: dict[str, int] = {}
    gaps: list[list[int]] = []
    numbers: list[Ints] = [np.zeros((6, 0), np.int64)]
    while rows := list(islice(records, _ROWS_AT_ONCE)):
        numbers.append(columns.numbers(rows))
        gaps += columns.gaps(rows, len(line_of))
        columns.add_names(rows, line_of)
    first, last, sizes, alignment, fixed, hints = np.concatenate(numbers, axis=1)
    try:
        buffers = Buffers(first, last, sizes, alignment=alignment, fixed=fixed, hints=hints, gaps=gaps, names=line_of)
    except MalformedInputError as error:
        raise MalformedInputError(f"{where}: {error}") from None
    return BufferFile(buffers, content, where, columns.places.get("offset"))


def write_buffer_file(path: Path, file: BufferFile, offsets: Ints) -> None:
    """Write `packed_lines` atomically, compressed for .gz. Raises WriteError."""
    write_bytes(path, packed_lines(file, offsets))


def packed_lines(file: BufferFile, offsets: Ints) -> bytes:
    """Return a file's records with offsets, in its offset column or in a new last column."""
    column, result = file.offset_column, io.StringIO()
    writer = csv.writer(result, lineterminator="\n")
    figures = ["offset", *map(str, offsets.tolist())]
    for record, figure in zip(_records(file.content, file.where), figures, strict=True):
        if column is None:
            result.write(f"{record.text},{figure}\n")
        else:
            record.fields[column] = figure
            writer.writerow(record.fields)
    return result.getvalue().encode()


def _records(content: bytes, where: str) -> Iterator[_Record]:
    lines: list[str] = []
    reader = csv.reader(_lines(content, where, lines), strict=True)
    width = 0
    while True:
        lines.clear()
        number = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            why = next((why for part, why in _CSV_ERRORS.items() if part in str(error)), _unended())
            raise _error(where, number, why) from None
        if fields is None:
            return
        text = "".join(lines).rstrip("\r\n")
        if not text.strip(_BLANKS):
            continue
        if '"' in text and not _SOUND_QUOTES.fullmatch(text):
            raise _error(where, number, _STRAY_QUOTE)
        width = width or len(fields)
        if len(fields) != width:
            why = f"it has {len(fields)} fields, the header has {width}; give all lines the same columns"
            raise _error(where, number, why)
        yield _Record(number, text, fields)


def _lines(content: bytes, where: str, record: list[str]) -> Iterator[str]:
    """Yield decoded lines, and append them to `record`, which the caller empties."""
    size = 0
    for number, line in enumerate(io.BytesIO(content.removeprefix(b"\xef\xbb\xbf")), 1):
        size = size + len(line) if record else len(line)
        if size > MOST_RECORD_BYTES:
            raise _error(where, number - len(record), _unended())
        try:
            record.append(line.decode())
        except UnicodeDecodeError:
            raise _error(where, number, "a field is no UTF-8 text; save the file in UTF-8") from None
        yield record[-1]


class _Columns:
    def __init__(self, header: _Record, where: str) -> None:
        self.where = where
        self.names = [name.strip(_BLANKS) for name in header.fields]
        self.places: dict[str, int] = {}
        for place, name in enumerate(self.names):
            meaning = _MEANINGS.get(name)
            if meaning is None:
                known = ", ".join(_MEANINGS)
                raise self._error(header, f"unknown column {_shortened(name)!r}; the known columns are {known}")
            if meaning in self.places:
                other = self.names[self.places[meaning]]
                raise self._error(header, f"columns {other!r} and {name!r} mean the same; give only one")
            self.places[meaning] = place
        for meaning in _REQUIRED:
            if meaning not in self.places:
                spellings = " or ".join(map(repr, _SPELLINGS[meaning]))
                raise self._error(header, f"there is no column {spellings}; add one")
        self._inclusive = self.names[self.places["last"]] == _INCLUSIVE

    def numbers(self, rows: Sequence[_Record]) -> Ints:
        """Return first, last, size, alignment, fixed offset and hint, shape (6, rows)."""
        first, last = self._integers(rows, "first"), self._integers(rows, "last")
        for end, steps in (("first", first), ("last", last)):
            wrong = (steps < -_MOST_STEPS) | (steps > _MOST_STEPS)
            self._refuse(rows, end, steps, wrong, f"a step is between plus and minus {_MOST_STEPS}")
        begin = self.names[self.places["first"]]
        self._refuse(rows, "last", last, last < first, f"the live range ends before its {begin}")
        sizes = self._integers(rows, "size")
        self._refuse(rows, "size", sizes, sizes < 0, "give bytes >= 0")
        alignment = self._integers(rows, "alignment", default=1)
        self._refuse(rows, "alignment", alignment, alignment < 1, "give bytes >= 1, or nothing")
        unset = np.iinfo(np.int64).min
        fixed = self._integers(rows, "offset", default=unset)
        given = fixed != unset
        self._refuse(rows, "offset", fixed, given & (fixed < 0), "give bytes >= 0, or nothing")
        unaligned = given & (fixed % alignment != 0)
        self._refuse(rows, "offset", fixed, unaligned, "it is no multiple of the alignment")
        hints = np.maximum(self._integers(rows, "hint", default=FREE), FREE)
        return np.stack([first, last + self._inclusive, sizes, alignment, np.where(given, fixed, FREE), hints])

    def add_names(self, rows: Sequence[_Record], line_of: dict[str, int]) -> None:
        for row in rows:
            name = row.fields[self.places["id"]]
            if not name:
                raise self._error(row, "the id is empty; give every buffer a name")
            if name in line_of:
                why = f"id {_shortened(name)!r} is also on line {line_of[name]}; give every buffer its own id"
                raise self._error(row, why)
            line_of[name] = row.line

    def gaps(self, rows: Sequence[_Record], first_buffer: int) -> list[list[int]]:
        found: list[list[int]] = []
        for number, row in enumerate(rows if "gaps" in self.places else ()):
            for gap in row.fields[self.places["gaps"]].split():
                match = _GAP.fullmatch(gap)
                if match is None:
                    raise self._error(row, _gap_complaint(gap))
                first, last = int(match[1]), int(match[2])
                if last < first:
                    raise self._error(row, f"gap {gap!r} ends before it starts; swap its steps")
                if first < -_MOST_STEPS or last > _MOST_STEPS:
                    raise self._error(row, _gap_complaint(gap))
                found.append([first_buffer + number, first, last + self._inclusive])
        return found

    def _integers(self, rows: Sequence[_Record], meaning: str, *, default: int | None = None) -> Ints:
        place = self.places.get(meaning)
        if place is None:
            return np.full(len(rows), default)
        numbers = np.empty(len(rows), np.int64)
        for index, row in enumerate(rows):
            field = row.fields[place]
            number = _integer(field) if field.strip(_BLANKS) else default
            if number is None:
                shown = _shortened(field)
                raise self._error(row, f"{self.names[place]} is {shown!r}; give a whole number of 64 bits")
            numbers[index] = number
        return numbers

    def _refuse(self, rows: Sequence[_Record], meaning: str, values: Ints, wrong: NDArray[np.bool_], why: str) -> None:
        if wrong.any():
            index = int(wrong.argmax())
            raise self._error(rows[index], f"{self.names[self.places[meaning]]} is {values[index]}; {why}")

    def _error(self, row: _Record, why: str) -> MalformedInputError:
        return _error(self.where, row.line, why)


def _error(where: str, line: int, why: str) -> MalformedInputError:
    return MalformedInputError(f"{where}, line {line}: {why}")


def _unended() -> str:
    return f"it does not end within {MOST_RECORD_BYTES} bytes; close every quote"


def _integer(field: str) -> int | None:
    match = _INTEGER.fullmatch(field)
    number = _LIMIT if match is None else int(match[1] + match[2])
    return number if -_LIMIT <= number < _LIMIT else None


def _shortened(field: str) -> str:
    return field if len(field) <= _LONGEST_SHOWN else f"{field[:_LONGEST_SHOWN]}..."


def _gap_complaint(gap: str) -> str:
    if "@" in gap:
        why = "has a window of bytes, which is not supported; leave the gap out"
    else:
        why = f"is not two steps of at most {_MOST_STEPS}; write gaps like 3-5 8-9"
    return f"gap {_shortened(gap)!r} {why}"
