"""Messages out of the binary format of protocol buffers."""

import struct
from array import array
from typing import Any, TypeVar

from lowtide.errors import MalformedInputError
from lowtide.frameworks.caffe2.proto.message import Field, Message, Source, deeper

AnyMessage = TypeVar("AnyMessage", bound=Message)

VARINT, FIXED64, BYTES, START_GROUP, END_GROUP, FIXED32 = range(6)
_WIRE_TYPES = {"float": FIXED32, "double": FIXED64, "string": BYTES, "bytes": BYTES}
_LARGEST_TAG = 2**32


def wire_type(field: Field) -> int:
    """Return how single values of a field are written."""
    return BYTES if field.is_message else _WIRE_TYPES.get(field.kind, VARINT)


def read_binary(kind: type[AnyMessage], content: bytes, where: str) -> AnyMessage:
    """Return the message in some bytes; `where` names them in messages.

    Fields that the message does not have are kept as they are. Raises MalformedInputError with the place in the file.
    """
    message = kind()
    _BinaryReader(content, where).read(message, 0, len(content), 0)
    return message


class _BinaryReader:
    def __init__(self, content: bytes, where: str) -> None:
        self._content = content
        self._where = where

    def read(self, message: Message, start: int, stop: int, depth: int) -> None:
        merged = not message.is_unset()
        message.source = Source(self._content, start, stop)
        at, unknown = start, list(message.unknown_binary)
        while at < stop:
            begins = at
            tag, at = self._varint(at, stop)
            number, wire = tag >> 3, tag & 7
            if number == 0 or tag >= _LARGEST_TAG:
                raise self._broken(begins, "there is no field of this number")
            field = message.fields_by_number.get(number)
            if field is None:
                at = self._skip(wire, number, at, stop, depth)
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
                raise self._broken(begins, f"{field.name} of a {type(message).__name__} is another kind of value")
        message.unknown_binary = tuple(unknown)
        if merged:
            message.source = None  # it stands in two pieces

    def _value(self, message: Message, field: Field, at: int, stop: int, depth: int) -> tuple[Any, int]:
        wire = wire_type(field)
        if wire == VARINT:
            value, at = self._varint(at, stop)
            return _number(field.kind, value), at
        if wire != BYTES:
            code, size = ("<f", 4) if wire == FIXED32 else ("<d", 8)
            self._check_end(at, size, stop)
            return struct.unpack_from(code, self._content, at)[0], at + size
        size, at = self._varint(at, stop)
        self._check_end(at, size, stop)
        if field.is_message:
            inner = Message.KINDS[field.kind]() if field.repeated else getattr(message, field.name)
            self.read(inner, at, at + size, deeper(depth, self._where))
            return inner, at + size
        piece = self._content[at : at + size]
        if field.kind == "string":
            try:
                return piece.decode(), at + size
            except UnicodeDecodeError:
                raise self._broken(at, f"{field.name} of a {type(message).__name__} is no UTF-8 text") from None
        return piece, at + size

    def _packed(self, message: Message, field: Field, at: int, stop: int) -> int:
        size, at = self._varint(at, stop)
        self._check_end(at, size, stop)
        values: list[Any] = getattr(message, field.name)
        end = at + size
        if wire_type(field) == VARINT:
            while at < end:
                value, at = self._varint(at, end)
                values.append(_number(field.kind, value))
            return end
        numbers = array("f" if field.kind == "float" else "d")
        if size % numbers.itemsize:
            raise self._broken(at, f"{field.name} of a {type(message).__name__} ends in the middle of a value")
        numbers.frombytes(self._content[at:end])
        values.extend(numbers)
        return end

    def _varint(self, at: int, stop: int) -> tuple[int, int]:
        value = shift = 0
        for place in range(at, min(at + 10, stop)):
            byte = self._content[place]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value & (2**64 - 1), place + 1
        raise self._broken(at, "a number has no end")

    def _skip(self, wire: int, number: int, at: int, stop: int, depth: int) -> int:
        if wire == VARINT:
            return self._varint(at, stop)[1]
        if wire in (FIXED32, FIXED64):
            size = 4 if wire == FIXED32 else 8
        elif wire == BYTES:
            size, at = self._varint(at, stop)
        elif wire == START_GROUP:
            return self._skip_group(number, at, stop, deeper(depth, self._where))
        else:
            raise self._broken(at, f"field {number} has a wire type that protocol buffers do not have")
        self._check_end(at, size, stop)
        return at + size

    def _skip_group(self, number: int, at: int, stop: int, depth: int) -> int:
        while True:
            tag, at = self._varint(at, stop)
            if tag & 7 == END_GROUP:
                if tag >> 3 != number:
                    raise self._broken(at, f"group {number} ends as another one")
                return at
            at = self._skip(tag & 7, tag >> 3, at, stop, depth)

    def _check_end(self, at: int, size: int, stop: int) -> None:
        if size > stop - at:
            raise self._broken(at, f"{size} bytes are announced and {stop - at} are left")

    def _broken(self, at: int, what: str) -> MalformedInputError:
        return MalformedInputError(
            f"{self._where}: no valid NetDef at byte {at}: {what}; the file is damaged or something else"
        )


def _number(kind: str, value: int) -> int | bool:
    if kind == "bool":
        return value != 0
    if kind == "uint32":
        return value & 0xFFFFFFFF
    bits = 64 if kind == "int64" else 32
    value &= 2**bits - 1
    return value - 2**bits if value >> (bits - 1) else value
