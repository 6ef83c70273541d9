"""What is there of a message of protocol buffers that may be cut off, or none at all."""

from collections.abc import Iterator

from lowtide.frameworks.wire import BYTES, FIXED32, FIXED64, VARINT, WireError, read_tag, read_varint

BROKEN = (0, 0, 0)
"""What stands for a field that breaks the format; nothing comes after it."""
_LONGEST_NUMBER = 10
_FIXED = {FIXED64: 8, FIXED32: 4}


def begun_fields(message: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield each field that begins in some bytes: its number, its wire type, its number or bytes, those cut off too.

    What breaks the format ends it with `BROKEN`, a number that the end cuts off without.
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
