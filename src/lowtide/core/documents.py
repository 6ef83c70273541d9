"""JSON documents in: the one door for graph, plan, costs and proof files, which trusts none of them."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import numpy as np

from lowtide import _native
from lowtide.core.errors import InputError, MalformedInputError
from lowtide.core.files import read_blocks

Record = TypeVar("Record")
MOST_VALUES = 2**25
"""The most values that a document may hold: about two million ops. Few compressed bytes can be very many."""
PIECE = 2**13
"""How many records of a long list exist at once while it is read or written."""


def read_document(path: Path, kind: type[Record], refusal: str) -> Record:
    """Return the JSON document in a file, gzipped or not, as a record of a kind.

    `refusal` is what messages say of a file that holds none, such as "no valid plan file".

    Raises MalformedInputError for what is no such document or has a key twice in one object, InputError for a file that
    cannot be read or holds too much. O(bytes); values are counted while the file is read, before any is made.
    """
    content = _read_limited(path)
    try:
        record = msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # ValueError: text that is no UTF-8
        other = re.search(r"unknown field `lowtide_(\w+)`", str(error))
        wrong = f"it is a {other[1]} file; check the order of the arguments" if other else error
        raise MalformedInputError(f"{path}: {refusal}: {wrong}") from None
    begin, end = _native.repeated_key(np.frombuffer(content, np.uint8))
    if begin >= 0:
        key = content[begin:end].decode(errors="replace")
        raise MalformedInputError(f"{path}: {refusal}: key {key!r} stands twice in one object; keep one of them")
    return record


def document_pieces(document: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a JSON document piece by piece; a value that is an iterator yields the pieces of one long list."""
    between = b"{"
    for key, value in document.items():
        yield between + msgspec.json.encode(key) + b":"
        yield from (
            _list_pieces(cast("Iterator[list[Any]]", value))
            if isinstance(value, Iterator)
            else [msgspec.json.encode(value)]
        )
        between = b","
    yield b"}"


def _list_pieces(lists: Iterator[list[Any]]) -> Iterator[bytes]:
    yield b"["
    between = b""
    for piece in filter(None, lists):
        yield between + msgspec.json.encode(piece)[1:-1]
        between = b","
    yield b"]"


def in_pieces(
    rows: msgspec.Raw, kind: type[list[Record]], path: Path, refusal: str, name: str
) -> Iterator[list[Record]]:
    """Yield a long list of records some thousands at a time, so that no more of them exist at once.

    `kind` is that of the list; `rows` is the list as it stands in the document at `path`, under the key `name`. Raises
    MalformedInputError for what is no such list. O(bytes).
    """
    first = 0
    try:
        raw = msgspec.json.decode(rows, type=list[msgspec.Raw])
        for first in range(0, len(raw), PIECE):
            content = b",".join(raw[first : first + PIECE])
            yield msgspec.json.decode(b"[" + content + b"]", type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MalformedInputError(f"{path}: {refusal}: {_moved(str(error), name, first)}") from None


def _moved(message: str, name: str, first: int) -> str:
    """Return what is wrong with a piece as it is said of the whole document, where the piece begins at a position."""
    if "$" not in message:
        return f"{message} - at `$.{name}`"
    return re.sub(r"\$\[(\d+)\]", lambda place: f"$.{name}[{first + int(place[1])}]", message, count=1)


def _read_limited(path: Path) -> bytearray:
    content, values = bytearray(), 0
    for block in read_blocks(path):
        values += sum(map(block.count, (b",", b"[", b"{")))  # each comes before a value; those in names count too
        if values > MOST_VALUES:
            raise InputError(f"{path}: more than {MOST_VALUES} values; lowtide reads no larger documents")
        content += block
    return content
