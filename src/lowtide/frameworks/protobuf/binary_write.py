"""Messages into the binary format of protocol buffers."""

import struct
from typing import Any

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.protobuf.binary_read import read_binary, wire_type
from lowtide.frameworks.protobuf.message import Field, Message
from lowtide.frameworks.wire import BYTES, FIXED32, FIXED64, VARINT, encode_bytes, encode_varint


def write_binary(message: Message) -> bytes:
    """Return the message in bytes: what was read and not changed as it was, fields by number, unknown ones last.

    Raises UnsupportedError for fields of a text file that only their name is known of.
    """
    if message.source is not None and isinstance(message.source.content, bytes):
        piece = message.source.content[message.source.start : message.source.stop]
        if read_binary(type(message), piece, "what was read") == message:
            return piece
    if message.unknown_text:
        raise UnsupportedError(
            f"there is a field that only its name is known of, {message.unknown_text[0].split()[0]!r}; write it as "
            "text (.pbtxt)"
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
