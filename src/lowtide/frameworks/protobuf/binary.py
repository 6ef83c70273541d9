"""The binary format of protocol buffers."""

import struct
from array import array
from typing import Any, TypeVar

from lowtide.core.errors import MalformedInputError, UnsupportedError, named_type
from lowtide.frameworks.protobuf.message import Field, Message, Source, deeper
from lowtide.frameworks.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    WireError,
    check_end,
    encode_bytes,
    encode_varint,
    read_tag,
    read_varint,
    skip_value,
)

AnyMessage = TypeVar("AnyMessage", bound=Message)
_WIRE_TYPES = {"float": FIXED32, "double": FIXED64, "string": BYTES, "bytes": BYTES}


def wire_type(field: Field) -> int:
    return BYTES if field.is_message else _WIRE_TYPES.get(field.kind, VARINT)


def read_binary(kind: type[AnyMessage], content: bytes, where: str) -> AnyMessage:
    """Return the message in some bytes, with unknown fields kept; raises MalformedInputError."""
    message = kind()
    reader = _BinaryReader(content, where, kind.FORMAT)
    try:
        reader.read(message, 0, len(content), 0)
    except WireError as error:
        raise reader.broken(error.at, error.what) from None
    return message


class _BinaryReader:
    def __init__(self, content: bytes, where: str, name: str) -> None:
        self._content = content
        self._name = name
        self._where = where

    def read(self, message: Message, start: int, stop: int, depth: int) -> None:
        merged = not message.is_unset()
        message.source = Source(self._content, start, stop)
        at, unknown = start, list(message.unknown_binary)
        while at < stop:
            begins = at
            number, wire, at = read_tag(self._content, at, stop)
            field = message.fields_by_number.get(number)
            if field is None:
                at = skip_value(self._content, number, wire, at, stop, depth)
                unknown.append(self._content[begins:at])
            elif wire == wire_type(field):
                value, at = self._value(message, field, at, stop, depth)
                if field.repeated:
                    getattr(message, field.name).append(value)
                else:
                    setattr(message, field.name, value)
            elif wire == BYTES and field.repeated and not field.is_message:
                at = self._packed(message, field, at, stop)
            else:
                raise self.broken(begins, f"{field.name} of {named_type(message)} has the wrong wire type")
        message.unknown_binary = tuple(unknown)
        if merged:
            message.source = None  # its source has several parts

    def _value(self, message: Message, field: Field, at: int, stop: int, depth: int) -> tuple[Any, int]:
        wire = wire_type(field)
        if wire == VARINT:
            value, at = read_varint(self._content, at, stop)
            return _number(field.kind, value), at
        if wire != BYTES:
            code, size = ("<f", 4) if wire == FIXED32 else ("<d", 8)
            check_end(at, size, stop)
            return struct.unpack_from(code, self._content, at)[0], at + size
        size, at = read_varint(self._content, at, stop)
        check_end(at, size, stop)
        if field.is_message:
            inner = message.KINDS[field.kind]() if field.repeated else getattr(message, field.name)
            self.read(inner, at, at + size, deeper(depth, self._where))
            return inner, at + size
        piece = self._content[at : at + size]
        if field.kind == "string":
            try:
                return piece.decode(), at + size
            except UnicodeDecodeError:
                raise self.broken(at, f"{field.name} of {named_type(message)} is not UTF-8 text") from None
        return piece, at + size

    def _packed(self, message: Message, field: Field, at: int, stop: int) -> int:
        size, at = read_varint(self._content, at, stop)
        check_end(at, size, stop)
        values: list[Any] = getattr(message, field.name)
        end = at + size
        if wire_type(field) == VARINT:
            while at < end:
                value, at = read_varint(self._content, at, end)
                values.append(_number(field.kind, value))
            return end
        numbers = array("f" if field.kind == "float" else "d")
        if size % numbers.itemsize:
            raise self.broken(at, f"{field.name} of {named_type(message)} ends within a value")
        numbers.frombytes(self._content[at:end])
        values.extend(numbers)
        return end

    def broken(self, at: int, what: str) -> MalformedInputError:
        return MalformedInputError(
            f"{self._where}: invalid {self._name} at byte {at}: {what}; check that the file is complete"
        )


def _number(kind: str, value: int) -> int | bool:
    if kind == "bool":
        return value != 0
    if kind == "uint32":
        return value & 0xFFFFFFFF
    if kind == "uint64":
        return value
    bits = 64 if kind == "int64" else 32
    value &= 2**bits - 1
    return value - 2**bits if value >> (bits - 1) else value


def write_binary(message: Message) -> bytes:
    """Return the message as bytes: unchanged messages as they were read, else fields by number, then unknown ones.

    Raises UnsupportedError for unknown fields of a text file, which have no numbers.
    """
    if message.source is not None and isinstance(message.source.content, bytes):
        piece = message.source.content[message.source.start : message.source.stop]
        if read_binary(type(message), piece, "what was read") == message:
            return piece
    if message.unknown_text:
        raise UnsupportedError(
            f"the number of field {message.unknown_text[0].split()[0]!r} is unknown; write the message as text (.pbtxt)"
        )
    pieces: list[bytes] = []
    for field, value in message.set_fields():
        if field.packed:
            content = b"".join(_scalar(field, item) for item in value)
            pieces.append(encode_bytes(field.number, content))
            continue
        tag = encode_varint(field.number << 3 | wire_type(field))
        pieces.extend(tag + _value(field, item) for item in (value if field.repeated else (value,)))
    return b"".join((*pieces, *message.unknown_binary))


def _value(field: Field, value: Any) -> bytes:
    if wire_type(field) != BYTES:
        return _scalar(field, value)
    content: bytes = write_binary(value) if field.is_message else value.encode() if field.kind == "string" else value
    return encode_varint(len(content)) + content


def _scalar(field: Field, value: Any) -> bytes:
    wire = wire_type(field)
    if wire == VARINT:
        return encode_varint(int(value))
    return struct.pack({FIXED32: "<f", FIXED64: "<d"}[wire], value)
