"""Messages into the text format of protocol buffers."""

from typing import Any

import numpy as np

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.protobuf.message import Field, Message
from lowtide.frameworks.protobuf.text_read import read_text
from lowtide.frameworks.wire import read_tag

_ESCAPED = {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}


def write_text(message: Message) -> str:
    """Return the message as text: what was read and not changed as it was, comments too, fields by number.

    Raises UnsupportedError for fields of a binary file that only their number is known of.
    """
    as_read = _as_read(message)
    return _fields(message, "") if as_read is None else as_read


def _as_read(message: Message) -> str | None:
    if message.source is None or isinstance(message.source.content, bytes):
        return None
    piece = message.source.content[message.source.start : message.source.stop]
    return piece if read_text(type(message), piece, "what was read") == message else None


def _fields(message: Message, indent: str) -> str:
    if message.unknown_binary:
        number, _, _ = read_tag(message.unknown_binary[0], 0, len(message.unknown_binary[0]))
        raise UnsupportedError(f"there is a field that only its number is known of, {number}; write it as binary (.pb)")
    lines: list[str] = []
    for field, value in message.set_fields():
        for item in value if field.repeated else (value,):
            if field.is_message:
                as_read = _as_read(item)
                inner = f"\n{_fields(item, indent + '  ')}{indent}" if as_read is None else as_read
                lines.append(f"{indent}{field.name} {{{inner}}}\n")
            else:
                lines.append(f"{indent}{field.name}: {_scalar(message, field, item)}\n")
    lines.extend(f"{indent}{piece}\n" for piece in message.unknown_text)
    return "".join(lines)


def _scalar(message: Message, field: Field, value: Any) -> str:
    if field.kind in ("string", "bytes"):
        return f'"{_escaped(value.encode() if isinstance(value, str) else bytes(value))}"'
    if field.kind == "bool":
        return "true" if value else "false"
    if field.kind in message.ENUMS:
        return next((name for name, number in message.ENUMS[field.kind].items() if number == value), str(value))
    if field.kind == "float":
        return str(np.float32(value))
    return repr(value)


def _escaped(content: bytes) -> str:
    return "".join(_ESCAPED.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in content)
