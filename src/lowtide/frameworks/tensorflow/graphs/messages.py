"""TensorFlow's messages, declared in `messages.tsv`, and GraphDefs in the text format.

Constants can be gigabytes, so only requested fields of one message are decoded.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.protobuf.binary import read_binary, wire_type, write_binary
from lowtide.frameworks.protobuf.message import Message, fields_of
from lowtide.frameworks.protobuf.text import decoded_text, read_text, write_text
from lowtide.frameworks.wire import (
    BYTES,
    VARINT,
    Content,
    encode_bytes,
    encode_number,
    encode_size,
    fields,
    read_varint,
)

_TABLE = [line.split("\t") for line in (Path(__file__).parent / "messages.tsv").read_text("utf-8").splitlines()]
"""Rows of (enum, name, NAME=number…) and (message, name, fields as read by `fields_of`). Only GraphDef is complete."""


def _numbers(name: str) -> dict[str, int]:
    (pairs,) = (values.split() for kind, declared, values in _TABLE if (kind, declared) == ("enum", name))
    return {value: int(number) for value, _, number in (pair.partition("=") for pair in pairs)}


_DATA_TYPES = _numbers("data_type")


class GraphMessage(Message):
    """A message of TensorFlow."""

    KINDS: ClassVar[dict[str, type[Message]]] = {}
    ENUMS: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "data_type": _DATA_TYPES | {f"{name}_REF": number + 100 for name, number in _DATA_TYPES.items()},
        "full_type": _numbers("full_type"),
    }
    FORMAT = "GraphDef"


_DEFAULTS: Mapping[str, Any] = {"string": "", "bytes": b"", "bool": False, "float": 0.0, "double": 0.0}


def _declare(name: str, declared: str) -> None:
    made = fields_of(declared)
    scalars = {field.name: _DEFAULTS.get(field.kind, 0) for field in made if not (field.repeated or field.is_message)}
    type(name, (GraphMessage,), {"FIELDS": made, **scalars, "__doc__": f"A {name} of TensorFlow."})


for _kind, _name, _fields in _TABLE:
    if _kind == "message":
        _declare(_name, _fields)


def field_number(kind: str, name: str) -> int:
    return GraphMessage.KINDS[kind].fields_by_name[name].number


def values(kind: str, content: Content | None, *names: str) -> Iterator[Any]:
    """Yield the values of a message's named fields, in file order.

    Nested messages and bytes are slices. Floating-point fields and other wire types are skipped. Raises WireError for
    broken content.
    """
    if content is None:
        return
    decoded = _decoded(kind, names)
    for number, wire, _, begin, end in fields(content, 0, len(content)):
        form = decoded.get(number)
        if form is None:
            continue
        if form == "number":
            at = begin if wire in (VARINT, BYTES) else end
            while at < end:  # one number, or several in a packed field
                value, at = read_varint(content, at, end)
                yield value - 2**64 if value >> 63 else value
        elif wire == BYTES:
            yield str(content[begin:end], "utf-8", "replace") if form == "string" else content[begin:end]


@cache
def _decoded(kind: str, names: tuple[str, ...]) -> dict[int, str]:
    found: dict[int, str] = {}
    for name in names:
        field = GraphMessage.KINDS[kind].fields_by_name[name]
        found[field.number] = "number" if wire_type(field) == VARINT else field.kind
    return found


def map_entry(kind: str, content: Content) -> tuple[str, Content]:
    key, value = "", content[:0]
    for each in values(kind, content, "key", "value"):
        if isinstance(each, str):
            key = each
        else:
            value = each
    return key, value


def named_fields(kind: str, content: Content) -> Iterator[tuple[str, int, int, int]]:
    """Yield each field's name and the positions of its tag, value and end.

    The name is empty for an undeclared field or wire type. Raises WireError for broken content.
    """
    declared = GraphMessage.KINDS[kind].fields_by_number
    for number, wire, start, begin, end in fields(content, 0, len(content)):
        field = declared.get(number)
        yield field.name if field is not None and wire == wire_type(field) else "", start, begin, end


def encode_field(kind: str, name: str, value: int | str | Content) -> bytes:
    number = field_number(kind, name)
    if isinstance(value, int):
        return encode_number(number, value)
    return encode_bytes(number, value.encode() if isinstance(value, str) else value)


def field_head(kind: str, name: str, size: int) -> bytes:
    """Return the bytes before a field's value of `size` bytes."""
    return encode_size(field_number(kind, name), size)


def from_text(content: Content, where: str) -> bytes:
    """Return a GraphDef in text format as binary.

    Raises MalformedInputError with the line of an error, UnsupportedError for an undeclared field.
    """
    try:
        return write_binary(read_text(GraphMessage.KINDS["GraphDef"], decoded_text(bytes(content), where), where))
    except UnsupportedError as error:
        raise UnsupportedError(f"{where}: {error}; write the graph as binary where it was made") from None


def to_text(content: bytes, where: str) -> bytes:
    """Return a binary GraphDef as text; raises UnsupportedError for an undeclared field."""
    return write_text(read_binary(GraphMessage.KINDS["GraphDef"], content, where)).encode()
