"""The wire format of protocol buffers: the fields of a message, whatever they mean."""

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
BROKEN = (0, 0, 0)
"""What stands for a field that breaks the format; nothing comes after it."""

Fields = Iterator[tuple[int, int, int | bytes]]
"""Numbers, wire types and contents of fields."""


def fields(message: bytes) -> Fields:
    """Yield each field that begins in some bytes: its number, its wire type, its number or bytes, those cut off too.

    What breaks the format ends it with `BROKEN`.
    """
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        wire = tag & 7
        if wire == VARINT:
            value, at = varint(message, at)
            yield tag >> 3, wire, value
        elif wire in (FIXED32, FIXED64, BYTES):
            size, at = varint(message, at) if wire == BYTES else (4 if wire == FIXED32 else 8, at)
            yield tag >> 3, wire, message[at : at + size]
            at += size
        else:
            yield BROKEN
            return


def varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place and the place behind it; 0 and a place further on where none ends there."""
    value = 0
    for place, byte in enumerate(message[at : at + 10]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    return 0, at + 10
