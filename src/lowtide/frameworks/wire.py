"""The wire format of protocol buffers: numbers, fields and their ends, in any message."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

from lowtide.core.errors import MalformedInputError

VARINT, FIXED64, BYTES, START_GROUP, END_GROUP, FIXED32 = range(6)
DEEPEST = 100
"""How deep messages may lie in one another, as in protocol buffers themselves."""
_LARGEST_TAG = 2**32
_FIXED = {FIXED64: 8, FIXED32: 4}

Content = bytes | memoryview


class WireError(MalformedInputError):
    """Bytes that are no message: `what` is wrong `at` a place."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(f"a message is broken at byte {at}: {what}; the file is damaged or something else")
        self.at = at
        self.what = what


@contextmanager
def named_errors(where: str) -> Generator[None]:
    """Say where the bytes came from in a WireError that is raised within."""
    try:
        yield
    except WireError as error:
        raise MalformedInputError(f"{where}: {error}") from None


def read_varint(content: Content, at: int, stop: int) -> tuple[int, int]:
    """Return a number and where it ends; raises WireError for one without an end."""
    value = shift = 0
    for place in range(at, min(at + 10, stop)):
        byte = content[place]
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value & (2**64 - 1), place + 1
    raise WireError(at, "a number has no end")


def read_tag(content: Content, at: int, stop: int) -> tuple[int, int, int]:
    """Return the number and the wire type of a field, and where its value begins; raises WireError for none."""
    tag, value_at = read_varint(content, at, stop)
    if tag >> 3 == 0 or tag >= _LARGEST_TAG:
        raise WireError(at, "there is no field of this number")
    return tag >> 3, tag & 7, value_at


def check_end(at: int, size: int, stop: int) -> None:
    """Raise WireError where fewer bytes are left than announced."""
    if size > stop - at:
        raise WireError(at, f"{size} bytes are announced and {stop - at} are left")


def skip_value(content: Content, number: int, wire: int, at: int, stop: int, depth: int = 0) -> int:
    """Return where the value of a field ends; raises WireError for a broken one."""
    if wire == VARINT:
        return read_varint(content, at, stop)[1]
    if wire == BYTES:
        size, at = read_varint(content, at, stop)
    elif wire in _FIXED:
        size = _FIXED[wire]
    elif wire == START_GROUP:
        return _skip_group(content, number, at, stop, depth + 1)
    else:
        raise WireError(at, f"field {number} has a wire type that protocol buffers do not have")
    check_end(at, size, stop)
    return at + size


def _skip_group(content: Content, number: int, at: int, stop: int, depth: int) -> int:
    if depth > DEEPEST:
        raise WireError(at, f"groups lie more than {DEEPEST} deep in one another")
    while True:
        tag, at = read_varint(content, at, stop)
        if tag & 7 == END_GROUP:
            if tag >> 3 != number:
                raise WireError(at, f"group {number} ends as another one")
            return at
        at = skip_value(content, tag >> 3, tag & 7, at, stop, depth)


def fields(content: Content, start: int, stop: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield every field: its number and wire type, where it begins, where its value begins, where both end.

    The value of a field of bytes begins behind its length. Raises WireError for what is no message.
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
    """Return a number as it is written; a negative one takes ten bytes."""
    value &= 2**64 - 1
    pieces = bytearray()
    while value > 127:
        pieces.append(value & 127 | 128)
        value >>= 7
    pieces.append(value)
    return bytes(pieces)


def encode_bytes(number: int, content: Content) -> bytes:
    """Return a field of bytes, text or a message."""
    return encode_size(number, len(content)) + bytes(content)


def encode_size(number: int, size: int) -> bytes:
    """Return what stands before so many bytes of a field of bytes, text or a message."""
    return encode_varint(number << 3 | BYTES) + encode_varint(size)


def encode_number(number: int, value: int) -> bytes:
    """Return a field of a number."""
    return encode_varint(number << 3 | VARINT) + encode_varint(value)
