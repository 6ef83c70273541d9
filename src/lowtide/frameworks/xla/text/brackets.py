"""Brackets, commas, strings and comments."""

import re
from collections.abc import Iterator

from lowtide.core.errors import MalformedInputError

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|/\*.*?\*/|[(){}\[\],]', re.DOTALL)
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|/\*.*?\*/', re.DOTALL)


def end_of_group(text: str, start: int) -> int:
    depth = 0
    for token in _TOKEN.finditer(text, start):
        letter = token[0]
        if letter in "({[":
            depth += 1
        elif letter in ")}]":
            depth -= 1
            if depth == 0:
                return token.end()
    raise MalformedInputError(f"{text[start : start + 80]!r} has an unclosed bracket")


def split_top(text: str) -> Iterator[str]:
    """Split at commas outside of brackets and strings, without comments."""
    text = without_comments(text)
    depth, start = 0, 0
    for token in _TOKEN.finditer(text):
        letter = token[0]
        if letter == ",":
            if depth == 0:
                yield text[start : token.start()]
                start = token.end()
        elif letter in "({[":
            depth += 1
        elif letter in ")}]":
            depth -= 1
    yield text[start:]


def without_comments(text: str) -> str:
    return _COMMENT.sub(lambda found: found[1] or "", text) if "/*" in text else text
