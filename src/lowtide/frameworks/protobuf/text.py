"""The text format of protocol buffers."""

from typing import Any, TypeVar

import numpy as np

from lowtide.core.errors import MalformedInputError, UnsupportedError
from lowtide.frameworks.protobuf.message import Field, Message, Source, deeper
from lowtide.frameworks.protobuf.tokens import Tokens
from lowtide.frameworks.wire import read_tag

AnyMessage = TypeVar("AnyMessage", bound=Message)
_CLOSED_BY = {"{": "}", "<": ">"}
_WORDS_OF_BOOL = {"true": True, "True": True, "t": True, "1": True, "false": False, "False": False, "f": False}
_RANGES = {"int64": (-(2**63), 2**63), "uint32": (0, 2**32), "uint64": (0, 2**64)}
_LONGEST_NUMBER = 400
_ESCAPED = {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}


def read_text(kind: type[AnyMessage], text: str, where: str) -> AnyMessage:
    """Return the message in a text, with unknown fields kept; raises MalformedInputError."""
    message = kind()
    reader = _TextReader(Tokens(text, where, kind.FORMAT), where)
    reader.read(message, "", 0)
    message.source = Source(text, 0, len(text))
    return message


class _TextReader:
    def __init__(self, tokens: Tokens, where: str) -> None:
        self._tokens = tokens
        self._where = where

    def read(self, message: Message, closing: str, depth: int) -> None:
        tokens, unknown = self._tokens, list(message.unknown_text)
        while not self._closes(closing):
            if tokens.next.kind == "end" and not closing:
                break
            begins = tokens.next.start
            name = self._name()
            field = message.fields_by_name.get(name)
            if field is None:
                unknown.append(tokens.text[begins : self._skip_value(depth)])
            elif field.is_message:
                self._messages(message, field, depth)
            else:
                self._scalars(message, field)
            tokens.take_if(",", ";")
        message.unknown_text = tuple(unknown)

    def _name(self) -> str:
        tokens = self._tokens
        if tokens.next.kind == "sign" and tokens.next.text == "[":
            begins = tokens.next.start
            while not self._closes("]"):
                self._check_more("a name in brackets")
                tokens.take()
            return tokens.text[begins : tokens.take().stop]
        if tokens.next.kind != "name":
            raise tokens.error(f"expected a field name, found {tokens.next.text!r}")
        return tokens.take().text

    def _closes(self, sign: str) -> bool:
        return self._tokens.next.kind == "sign" and self._tokens.next.text == sign

    def _check_more(self, what: str) -> None:
        if self._tokens.next.kind == "end":
            raise self._tokens.error(f"{what} does not end")

    def _messages(self, message: Message, field: Field, depth: int) -> None:
        self._tokens.take_if(":")
        if self._tokens.take_if("["):
            self._list(lambda: self._message(message, field, depth), field)
        else:
            self._message(message, field, depth)

    def _message(self, message: Message, field: Field, depth: int) -> None:
        tokens = self._tokens
        opening = tokens.next
        if opening.text not in _CLOSED_BY:
            raise tokens.error(f"expected {field.name} {{ ... }}, found {opening.text!r}")
        tokens.take()
        inner: Message = message.KINDS[field.kind]() if field.repeated else getattr(message, field.name)
        merged = not inner.is_unset()
        self.read(inner, _CLOSED_BY[opening.text], deeper(depth, self._where))
        inner.source = None if merged else Source(tokens.text, opening.stop, tokens.next.start)
        tokens.take()
        if field.repeated:
            getattr(message, field.name).append(inner)

    def _scalars(self, message: Message, field: Field) -> None:
        tokens = self._tokens
        if not tokens.take_if(":"):
            raise tokens.error(f"expected ':' and a value of {field.name}, found {tokens.next.text!r}")
        if field.repeated:
            values: list[Any] = getattr(message, field.name)
            if tokens.take_if("["):
                self._list(lambda: values.append(self._scalar(message, field)), field)
            else:
                values.append(self._scalar(message, field))
        else:
            setattr(message, field.name, self._scalar(message, field))

    def _list(self, read_one: Any, field: Field) -> None:
        if not field.repeated:
            raise self._tokens.error(f"{field.name} is a single value, found a list")
        if self._tokens.take_if("]"):
            return
        read_one()
        while self._tokens.take_if(","):
            read_one()
        if not self._tokens.take_if("]"):
            raise self._tokens.error(f"expected ',' or ']', found {self._tokens.next.text!r}")

    def _scalar(self, message: Message, field: Field) -> Any:
        tokens = self._tokens
        if field.kind in ("string", "bytes"):
            content = tokens.string()
            if field.kind == "bytes":
                return content
            try:
                return content.decode()
            except UnicodeDecodeError:
                raise tokens.error(f"the {field.name} before it is not UTF-8 text") from None
        negative = tokens.take_if("-")
        word = tokens.next
        names = message.ENUMS.get(field.kind, {})
        if field.kind == "bool" and word.text in _WORDS_OF_BOOL | {"0": False} and not negative:
            value: Any = _WORDS_OF_BOOL.get(word.text, False)
        elif word.text in names and not negative:
            value = names[word.text]
        elif field.kind in ("float", "double"):
            value = self._float(field, negative)
        else:
            value = self._integer(field, negative)
        tokens.take()
        return value

    def _integer(self, field: Field, negative: bool) -> int:
        word = self._tokens.next.text
        lowest, above = _RANGES.get(field.kind, (-(2**31), 2**31))
        try:
            base = 16 if word[:2].lower() == "0x" else 8 if word[:1] == "0" and len(word) > 1 else 10
            value = -int(word[:_LONGEST_NUMBER], base) if negative else int(word[:_LONGEST_NUMBER], base)
        except ValueError:
            raise self._tokens.error(f"{word!r} is not a value of {field.name}") from None
        if len(word) >= _LONGEST_NUMBER or not lowest <= value < above or field.kind == "bool":
            raise self._tokens.error(f"{word!r} is out of range for {field.name}")
        return value

    def _float(self, field: Field, negative: bool) -> float:
        word = self._tokens.next
        text = word.text.lower()
        try:
            if word.kind == "name" and text not in ("inf", "infinity", "nan"):
                raise ValueError
            value = (
                float(int(text, 16))
                if text.startswith("0x")
                else float(text if word.kind == "name" else text.rstrip("f"))
            )
        except (ValueError, OverflowError):
            raise self._tokens.error(f"{word.text!r} is not a value of {field.name}") from None
        if field.kind == "float":
            with np.errstate(over="ignore"):
                value = float(np.float32(value))
        return -value if negative else value

    def _skip_value(self, depth: int) -> int:
        tokens = self._tokens
        has_colon = tokens.take_if(":")
        end = tokens.next.stop
        if tokens.next.text in _CLOSED_BY and tokens.next.kind == "sign":
            closing = _CLOSED_BY[tokens.take().text]
            self.read(Message(), closing, deeper(depth, self._where))
            return tokens.take().stop
        if not has_colon:
            raise tokens.error(f"expected ':' or '{{', found {tokens.next.text!r}")
        if tokens.take_if("["):
            while not self._closes("]"):
                self._check_more("a list")
                if tokens.next.text in _CLOSED_BY:
                    self._skip_value(deeper(depth, self._where))
                else:
                    tokens.take()
            return tokens.take().stop
        tokens.take_if("-")
        end = tokens.next.stop
        if tokens.next.kind == "string":
            while tokens.next.kind == "string":
                end = tokens.take().stop
        elif tokens.next.kind in ("name", "number"):
            tokens.take()
        else:
            raise tokens.error(f"expected a value, found {tokens.next.text!r}")
        return end


def decoded_text(content: bytes, where: str) -> str:
    """Return bytes decoded as UTF-8; raises MalformedInputError."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise MalformedInputError(f"{where}: byte {error.start} is not UTF-8; save the file as UTF-8") from None


def write_text(message: Message) -> str:
    """Return the message as text: unchanged messages as they were read, with comments, else fields by number.

    Raises UnsupportedError for unknown fields of a binary file, which have no names.
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
        raise UnsupportedError(f"the name of field {number} is unknown; write the message as binary (.pb)")
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
