"""JSON documents: graph, plan, costs and proof files."""

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
Fields = TypeVar("Fields")
MOST_VALUES = 2**25
"""Enough for about two million ops."""
PIECE = 2**13


def read_document(path: Path, kind: type[Record], refusal: str) -> Record:
    """Return a file's JSON document as a record. O(bytes).

    Raises MalformedInputError, with `refusal` in its message, for another type or a repeated key, InputError for a file
    that is unreadable or too large.
    """
    content = _read_limited(path)
    try:
        record = msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # ValueError: not UTF-8
        other = re.search(r"unknown field `lowtide_(\w+)`", str(error))
        reason = f"it is a {other[1]} file; check the order of the arguments" if other else error
        raise MalformedInputError(f"{path}: {refusal}: {reason}") from None
    begin, end = _native.repeated_key(np.frombuffer(content, np.uint8))
    if begin >= 0:
        key = content[begin:end].decode(errors="replace")
        raise MalformedInputError(f"{path}: {refusal}: key {key!r} occurs twice in one object; remove one")
    return record


def fields_of(kind: type[Fields], record: object, **others: object) -> Fields:
    """Return a TypedDict with `others` and a record's attributes; optional keys come only from `others`."""
    declared: Any = kind
    names = [name for name in declared.__annotations__ if name in others or name in declared.__required_keys__]
    return cast("Fields", {name: others[name] if name in others else getattr(record, name) for name in names})


def document_pieces(document: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a JSON document in pieces; an iterator of lists becomes one long list."""
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
    """Yield the list under key `name` in pieces; raises MalformedInputError for another type. O(bytes)."""
    first = 0
    try:
        raw = msgspec.json.decode(rows, type=list[msgspec.Raw])
        for first in range(0, len(raw), PIECE):
            content = b",".join(raw[first : first + PIECE])
            yield msgspec.json.decode(b"[" + content + b"]", type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MalformedInputError(f"{path}: {refusal}: {_with_document_path(str(error), name, first)}") from None


def _with_document_path(message: str, name: str, first: int) -> str:
    if "$" not in message:
        return f"{message} - at `$.{name}`"
    return re.sub(r"\$\[(\d+)\]", lambda place: f"$.{name}[{first + int(place[1])}]", message, count=1)


def _read_limited(path: Path) -> bytearray:
    content, values = bytearray(), 0
    for block in read_blocks(path):
        values += sum(map(block.count, (b",", b"[", b"{")))  # each precedes a value
        if values > MOST_VALUES:
            raise InputError(f"{path}: more than {MOST_VALUES} values; larger documents are not supported")
        content += block
    return content
