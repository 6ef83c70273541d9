"""JSON documents in: the one door for graph, plan, costs and proof files, which trusts none of them."""

from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from lowtide import _native
from lowtide.errors import InputError, MalformedInputError
from lowtide.files import read_blocks

Record = TypeVar("Record")
MOST_VALUES = 2**25
"""The most values that a document may hold: about two million ops. Few compressed bytes can be very many."""


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
        raise MalformedInputError(f"{path}: {refusal}: {error}") from None
    begin, end = _native.repeated_key(np.frombuffer(content, np.uint8))
    if begin >= 0:
        key = content[begin:end].decode(errors="replace")
        raise MalformedInputError(f"{path}: {refusal}: key {key!r} stands twice in one object; keep one of them")
    return record


def _read_limited(path: Path) -> bytearray:
    content, values = bytearray(), 0
    for block in read_blocks(path):
        values += sum(map(block.count, (b",", b"[", b"{")))  # each comes before a value; those in names count too
        if values > MOST_VALUES:
            raise InputError(f"{path}: more than {MOST_VALUES} values; lowtide reads no larger documents")
        content += block
    return content
