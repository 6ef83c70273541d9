"""Buffers in CSV files, as google/minimalloc reads and writes them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import MalformedInputError
from lowtide.core.files import read_bytes, write_bytes
from lowtide.engine.packing.buffers import Buffers
from lowtide.engine.packing.csv_columns import Columns, shortened
from lowtide.engine.packing.csv_text import CsvText, Records


@dataclass(frozen=True, slots=True, eq=False)
class BufferFile:
    """What a CSV file says of buffers, and where, so that its lines can be written back as they were read."""

    buffers: Buffers
    """In the order of the lines; live ranges are half-open whatever the file has."""
    text: CsvText
    lines: NDArray[np.int64]
    """Where the header and then the line of every buffer begin and end, shape (1 + buffers, 2)."""
    offsets: NDArray[np.int64] | None
    """Where the offset in those lines begins and ends, same shape; None where there is no such column."""


def read_buffer_file(path: Path) -> BufferFile:
    """Read a CSV file, gzipped or not, with one buffer a line.

    Columns in any order: `id`, `size` in bytes, `lower` and `upper` (half-open) or `start` and `end` (inclusive); if
    wanted `alignment`, `offset` (fixed), `hint` and `gaps`, whose fields may be empty. O(bytes).
    Raises InputError, and MalformedInputError, which names line and column, for anything that is not that.
    """
    return parse_buffers(read_bytes(path), str(path))


def parse_buffers(content: bytes, where: str) -> BufferFile:
    """Read the content of a CSV file; `where` is what messages call it. Raises what `read_buffer_file` raises."""
    text = CsvText(content, where)
    blocks = text.records()
    header = next(blocks, None)
    if header is None:
        raise MalformedInputError(f"{where}: it is empty; give a line of column names, then one line for each buffer")
    columns = Columns.of(text, header)
    own = columns.places.get("offset")
    names: list[str] = []
    gaps: list[list[int]] = []
    numbers: list[NDArray[np.int64]] = [np.zeros((6, 0), np.int64)]
    lines = [_spans(header, 0, -1)]
    offsets = [] if own is None else [_spans(header, own, own)]
    for records in blocks:
        first, last = columns.live_ranges(records)
        alignments = columns.alignments(records)
        fixed, hints = columns.fixed(records, alignments), columns.hints(records)
        numbers.append(np.stack([first, last, columns.sizes(records), alignments, fixed, hints]))
        gaps += columns.gaps(records, len(names))
        names += columns.ids(records)
        lines.append(_spans(records, 0, -1))
        if own is not None:
            offsets.append(_spans(records, own, own))
    spans = np.concatenate(lines)
    _refuse_twins(text, names, spans[1:, 0])
    first, last, sizes, alignments, fixed, hints = np.concatenate(numbers, axis=1)
    try:
        buffers = Buffers(first, last, sizes, alignment=alignments, fixed=fixed, hints=hints, gaps=gaps, names=names)
    except MalformedInputError as error:
        raise MalformedInputError(f"{where}: {error}") from None
    return BufferFile(buffers, text, spans, np.concatenate(offsets) if offsets else None)


def write_buffer_file(path: Path, file: BufferFile, offsets: NDArray[np.int64]) -> None:
    """Write the lines of a file with an offset for every buffer: in that column, or in a new last one.

    The file is written beside its place and renamed; a name that ends in .gz is compressed. Raises WriteError when it
    cannot be written.
    """
    write_bytes(path, packed_lines(file, offsets))


def packed_lines(file: BufferFile, offsets: NDArray[np.int64]) -> bytes:
    """Return the lines of a file with an offset for every buffer: in that column, or in a new last one.

    Everything else stays as it was read, but that lines end in LF and blank ones are gone.
    """
    content = file.text.content
    figures = [b"offset", *(b"%d" % offset for offset in offsets.tolist())]
    if file.offsets is None:
        rows = [
            content[start:end] + b"," + figure
            for (start, end), figure in zip(file.lines.tolist(), figures, strict=True)
        ]
    else:
        rows = [
            content[start:before] + figure + content[after:end]
            for (start, end), (before, after), figure in zip(
                file.lines.tolist(), file.offsets.tolist(), figures, strict=True
            )
        ]
    return b"\n".join([*rows, b""])


def _spans(records: Records, first: int, last: int) -> NDArray[np.int64]:
    """Return where fields begin and end, from one column to another, quotes and all."""
    starts = records.starts[:, first] - records.quoted[:, first]
    return np.stack([starts, records.ends[:, last] + records.quoted[:, last]], axis=1)


def _refuse_twins(text: CsvText, names: list[str], positions: NDArray[np.int64]) -> None:
    if len(set(names)) == len(names):
        return
    seen: dict[str, int] = {}
    for row, name in enumerate(names):
        if name in seen:
            earlier = text.line_number(int(positions[seen[name]]))
            why = f"id {shortened(name)!r} stands on line {earlier}, too; give every buffer a name of its own"
            raise text.error(int(positions[row]), why)
        seen[name] = row
