"""The wire format of protocol buffers: read and write numbers and fields of any message, complete or cut off."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

from lowtide.core.errors import MalformedInputError

VARINT, FIXED64, BYTES, START_GROUP, END_GROUP, FIXED32 = range(6)
DEEPEST = 100
BROKEN = (0, 0, 0)
"""Yielded last by `begun_fields` for an invalid field."""
_LONGEST_NUMBER = 10
_LARGEST_TAG = 2**32
_FIXED = {FIXED64: 8, FIXED32: 4}

Content = bytes | memoryview


class WireError(MalformedInputError):
    """The problem `what` at byte `at`."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(f"invalid message at byte {at}: {what}; check that the file is complete")
        self.at = at
        self.what = what


@contextmanager
def named_errors(where: str) -> Generator[None]:
    """Name the source of the bytes in a WireError."""
    try:
        yield
    except WireError as error:
        raise MalformedInputError(f"{where}: {error}") from None


def read_varint(content: Content, at: int, stop: int) -> tuple[int, int]:
    """Return a number and its end. Raises WireError."""
    value = shift = 0
    for place in range(at, min(at + 10, stop)):
        byte = content[place]
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value & (2**64 - 1), place + 1
    raise WireError(at, "a number does not end")


def read_tag(content: Content, at: int, stop: int) -> tuple[int, int, int]:
    """Return a field's number and wire type, and the start of its value. Raises WireError."""
    tag, value_at = read_varint(content, at, stop)
    if tag >> 3 == 0 or tag >= _LARGEST_TAG:
        raise WireError(at, "invalid field number")
    return tag >> 3, tag & 7, value_at


def check_end(at: int, size: int, stop: int) -> None:
    if size > stop - at:
        raise WireError(at, f"{size} bytes expected, {stop - at} left")


def skip_value(content: Content, number: int, wire: int, at: int, stop: int, depth: int = 0) -> int:
    """Return the end of a field's value. Raises WireError."""
    if wire == VARINT:
        return read_varint(content, at, stop)[1]
    if wire == BYTES:
        size, at = read_varint(content, at, stop)
    elif wire in _FIXED:
        size = _FIXED[wire]
    elif wire == START_GROUP:
        return _skip_group(content, number, at, stop, depth + 1)
    else:
        raise WireError(at, f"field {number} has an unknown wire type")
    check_end(at, size, stop)
    return at + size


def _skip_group(content: Content, number: int, at: int, stop: int, depth: int) -> int:
    if depth > DEEPEST:
        raise WireError(at, f"groups are nested more than {DEEPEST} deep")
    while True:
        tag, at = read_varint(content, at, stop)
        if tag & 7 == END_GROUP:
            if tag >> 3 != number:
                raise WireError(at, f"group {number} is closed by another number")
            return at
        at = skip_value(content, tag >> 3, tag & 7, at, stop, depth)


def fields(content: Content, start: int, stop: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield number, wire type, start, start of the value, and end of each field. Raises WireError.

    The value of bytes starts after their length.
    """
    at = start
    while at < stop:
        number, wire, value = read_tag(content, at, stop)
        end = skip_value(content, number, wire, value, stop)
        if wire == BYTES:
            value = read_varint(content, value, stop)[1]
        yield number, wire, at, value, end
        at = end


def encode_varint(value: int) -> bytes:
    """Return the encoded number; negative ones need ten bytes."""
    value &= 2**64 - 1
    pieces = bytearray()
    while value > 127:
        pieces.append(value & 127 | 128)
        value >>= 7
    pieces.append(value)
    return bytes(pieces)


def encode_bytes(number: int, content: Content) -> bytes:
    return encode_size(number, len(content)) + bytes(content)


def encode_size(number: int, size: int) -> bytes:
    return encode_varint(number << 3 | BYTES) + encode_varint(size)


def encode_number(number: int, value: int) -> bytes:
    return encode_varint(number << 3 | VARINT) + encode_varint(value)


def begun_fields(message: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield number, wire type and value of each field in bytes that may be cut off, or no message at all.

    The last value may be incomplete. An invalid field yields `BROKEN` and ends the iteration.
    """
    at, stop = 0, len(message)
    while at < stop:
        try:
            number, wire, begin = read_tag(message, at, stop)
            if wire == VARINT:
                value, end = read_varint(message, begin, stop)
                yield number, wire, value
            elif wire == BYTES or wire in _FIXED:
                size, begin = read_varint(message, begin, stop) if wire == BYTES else (_FIXED[wire], begin)
                end = begin + size
                yield number, wire, message[begin:end]
            else:
                yield BROKEN
                return
        except WireError:
            if stop - at > _LONGEST_NUMBER:
                yield BROKEN
            return
        at = end
