"""Tokens of the text format of protocol buffers."""

import re
from dataclasses import dataclass

from lowtide.core.errors import MalformedInputError

_WORD = re.compile(
    r"""(?P<space>(?:[ \t\r\n\f\v]|\#[^\n]*)+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)(?![A-Za-z0-9_.]))
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<sign>[-:{}<>\[\],;/.])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_LITERAL = b"\\'\"?"


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    """name, number, string, sign or end."""
    text: str
    start: int
    stop: int


class Tokens:
    def __init__(self, text: str, where: str, name: str) -> None:
        self.text = text
        self._name = name
        self._where = where
        self._at = 0
        self.next = Token("end", "", 0, 0)
        self.take()

    def take(self) -> Token:
        """Return the next token and advance; raises MalformedInputError."""
        taken = self.next
        while self._at < len(self.text):
            match = _WORD.match(self.text, self._at)
            if match is None:
                self.next = Token("sign", self.text[self._at], self._at, self._at + 1)
                raise self.error(f"unexpected {self.text[self._at]!r}")
            self._at = match.end()
            if match.lastgroup != "space":
                self.next = Token(str(match.lastgroup), match[0], match.start(), match.end())
                return taken
        self.next = Token("end", "the end", len(self.text), len(self.text))
        return taken

    def take_if(self, *texts: str) -> bool:
        """Advance past the next token if it is one of these signs, and return whether it is."""
        found = self.next.kind == "sign" and self.next.text in texts
        if found:
            self.take()
        return found

    def error(self, what: str) -> MalformedInputError:
        line = self.text.count("\n", 0, self.next.start) + 1
        return MalformedInputError(f"{self._where}: invalid {self._name} in line {line}: {what}; correct the text")

    def string(self) -> bytes:
        """Return the bytes of one or several adjacent strings, and advance."""
        if self.next.kind != "string":
            raise self.error(f"expected a quoted string, found {self.next.text!r}")
        pieces: list[bytes] = []
        while self.next.kind == "string":
            content = self.next.text[1:-1].encode("utf-8", "surrogatepass")
            pieces.append(_ESCAPE.sub(self._unescaped, content))
            self.take()
        return b"".join(pieces)

    def _unescaped(self, match: re.Match[bytes]) -> bytes:
        octal, hexadecimal, short, long, letter = match.groups()
        if octal is not None and int(octal, 8) < 256:
            return bytes([int(octal, 8)])
        if hexadecimal is not None:
            return bytes([int(hexadecimal, 16)])
        if short is not None or long is not None:
            number = int(short or long, 16)
            if number < 0x110000 and not 0xD800 <= number < 0xE000:
                return chr(number).encode()
        elif letter is not None and (letter in _LETTERS or letter in _LITERAL):
            return _LETTERS.get(letter, letter)
        raise self.error(f"{match[0].decode('utf-8', 'replace')!r} is not a character")
