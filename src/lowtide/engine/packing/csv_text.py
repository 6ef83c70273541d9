"""CSV text to the positions of its fields, a block of many lines at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import MalformedInputError

BLOCK_BYTES = 2**24
"""Read at a time; also what no line may exceed."""
_COMMA, _NEWLINE, _RETURN, _QUOTE = b',\n\r"'
_BLANKS = b" \t\r"


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Lines of a CSV text with equally many fields; positions in the text, shape (lines, fields)."""

    starts: NDArray[np.int64]
    """Where a field begins; behind its quote where it is quoted."""
    ends: NDArray[np.int64]
    """Where it ends, exclusive; before its closing quote where it is quoted."""
    quoted: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class CsvText:
    """A CSV text: commas between fields, RFC 4180 quotes, lines that end in LF or CRLF, blank lines skipped."""

    content: bytes
    where: str
    """What messages call it."""

    def line_number(self, position: int) -> int:
        """Return the line, counted from 1, on which a position lies."""
        return self.content.count(b"\n", 0, position) + 1

    def error(self, position: int, why: str) -> MalformedInputError:
        """Return the error to raise for what stands at a position."""
        return MalformedInputError(f"{self.where}, line {self.line_number(position)}: {why}")

    def field(self, start: int, end: int, quoted: bool) -> str:
        """Return a field's text without its quotes. Raises MalformedInputError where it is no UTF-8."""
        try:
            text = self.content[start:end].decode()
        except UnicodeDecodeError:
            raise self.error(start, "a field is no UTF-8 text; save the file as CSV in UTF-8") from None
        return text.replace('""', '"') if quoted else text

    def records(self) -> Iterator[Records]:
        """Yield the first line that is not blank, the header, then the others in blocks; all have as many fields as it.

        O(bytes), in NumPy. Raises MalformedInputError for lines with other numbers of fields and for stray quotes.
        """
        position = len(b"\xef\xbb\xbf") if self.content.startswith(b"\xef\xbb\xbf") else 0
        width: int | None = None
        while position < len(self.content):
            if not self.content[position : position + BLOCK_BYTES].strip(_BLANKS + b"\n"):
                position += BLOCK_BYTES
                continue
            separators, end = self._separators(position)
            starts = np.concatenate([[position], separators[:-1] + 1])
            ends_line = self._bytes(separators) == _NEWLINE
            ends_line[-1] = True
            lasts = np.flatnonzero(ends_line)
            counts = np.diff(lasts, prepend=-1)
            firsts = lasts - counts + 1
            blank = self._blank(counts, starts[firsts], separators[lasts])
            position = end
            if blank.all():
                continue
            if width is None:
                header = int(np.flatnonzero(~blank)[0])
                width = int(counts[header])
                fields = slice(int(firsts[header]), int(firsts[header]) + width)
                yield self._records(starts[None, fields].copy(), separators[None, fields].copy())
                blank[header] = True
            ragged = np.flatnonzero((counts != width) & ~blank)
            if len(ragged):
                line = int(ragged[0])
                why = f"it has {counts[line]} fields, the header has {width}; give every line the same columns"
                raise self.error(int(starts[firsts[line]]), why)
            kept = ~np.repeat(blank, counts)
            if kept.any():
                yield self._records(starts[kept].reshape(-1, width), separators[kept].reshape(-1, width))

    def _bytes(self, positions: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the bytes at positions; 0 behind the end."""
        data = np.frombuffer(self.content, np.uint8)
        return np.where(positions < len(data), data[np.minimum(positions, len(data) - 1)], 0).astype(np.uint8)

    def _separators(self, position: int) -> tuple[NDArray[np.int64], int]:
        """Return where the fields of a block of whole lines end, and where the next block begins."""
        stop = min(position + BLOCK_BYTES, len(self.content))
        data = np.frombuffer(self.content, np.uint8, stop - position, position)
        separates = (data == _COMMA) | (data == _NEWLINE)
        inside = np.logical_xor.accumulate(data == _QUOTE)
        separators = np.flatnonzero(separates & ~inside)
        line_ends = np.flatnonzero(data[separators] == _NEWLINE)
        if stop == len(self.content) and not inside[-1]:
            separators += position
            return (separators if data[-1] == _NEWLINE else np.append(separators, stop)), stop
        if not len(line_ends) or stop == len(self.content):
            begin = position + (int(separators[line_ends[-1]]) + 1 if len(line_ends) else 0)
            raise self.error(begin, f"it does not end within {BLOCK_BYTES} bytes; close every quote, or use LF ends")
        separators = separators[: line_ends[-1] + 1] + position
        return separators, int(separators[-1]) + 1

    def _blank(
        self, counts: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        blank = (counts == 1) & (starts == ends)
        for line in np.flatnonzero((counts == 1) & ~blank & np.isin(self._bytes(starts), list(_BLANKS))).tolist():
            blank[line] = not self.content[starts[line] : ends[line]].strip(_BLANKS)
        return blank

    def _records(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Records:
        ends[:, -1] -= (self._bytes(ends[:, -1] - 1) == _RETURN) & (ends[:, -1] > starts[:, -1])
        quoted = (self._bytes(starts) == _QUOTE) & (starts < ends)
        first, last = int(starts[0, 0]), int(ends[-1, -1])
        quotes = np.flatnonzero(np.frombuffer(self.content, np.uint8, last - first, first) == _QUOTE) + first
        if len(quotes):
            self._refuse_stray(quotes, starts, ends, quoted)
        return Records(starts + quoted, ends - quoted, quoted)

    def _refuse_stray(
        self, quotes: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64], quoted: NDArray[np.bool_]
    ) -> None:
        """Refuse quotes that neither open nor close a field, nor stand doubled in a quoted one."""
        before = np.searchsorted(quotes, starts.ravel())
        inner = np.searchsorted(quotes, ends.ravel()) - before
        stray = (inner > 0) & ~(quoted & (self._bytes(ends - 1) == _QUOTE)).ravel()
        places = np.arange(len(quotes)) - np.repeat(before, inner)
        opens_pair = (places % 2 == 1) & (places < np.repeat(inner, inner) - 1)
        stray[np.repeat(np.arange(len(inner)), inner)[opens_pair & (np.diff(quotes, append=-1) != 1)]] = True
        for field in np.flatnonzero(stray)[:1].tolist():
            why = "a quote stands within a field; put the whole field in quotes and double those in it"
            raise self.error(int(starts.ravel()[field]), why)
