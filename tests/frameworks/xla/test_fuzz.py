"""Truncated and mutated HLO text is read or raises one line, without a crash or a hang."""

import random
from contextlib import suppress

import pytest

from lowtide.core.errors import InputError, LowtideError, MalformedInputError
from lowtide.frameworks.xla.load import read_content
from lowtide.xla import XlaModel, parse_module
from tests.frameworks.xla.modules import FOLDER, text_of

SMALL = ("conditional.hlo", "swap.before.hlo", "nested.before.hlo")
PIECES = [
    "(",
    ")",
    "{",
    "}",
    '"',
    ",",
    "=",
    "%",
    "ROOT ",
    "while",
    "tuple",
    "/*",
    "*/",
    "//",
    "\n",
    "99",
    "[",
    "]",
    "S(",
    "<=",
]


def _open(text: str) -> None:
    """Read a text. Errors other than lowtide's fail the test."""
    with suppress(LowtideError):
        XlaModel(parse_module(text))


@pytest.mark.parametrize("name", SMALL)
def test_a_truncated_module_is_read_or_raises(name: str) -> None:
    text = text_of(name)
    for end in range(0, len(text), 13):
        _open(text[:end])


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("seed", range(60))
def test_a_mutated_module_is_read_or_raises(name: str, seed: int) -> None:
    draw = random.Random(seed)
    text = text_of(name)
    for _ in range(draw.randint(1, 6)):
        at, length = draw.randrange(len(text)), draw.choice([0, 1, 5, 40])
        other = draw.randrange(len(text))
        put = draw.choice([draw.choice(PIECES), text[other : other + 30], ""])
        text = text[:at] + put + text[at + length :]
    _open(text)


@pytest.mark.parametrize("seed", range(60))
def test_swapped_words_are_read_or_raise(seed: int) -> None:
    draw = random.Random(seed)
    words = text_of("nested.before.hlo").split(" ")
    for _ in range(4):
        one, other = draw.randrange(len(words)), draw.randrange(len(words))
        words[one], words[other] = words[other], words[one]
    _open(" ".join(words))


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_proto_is_read_or_raises(seed: int) -> None:
    """jaxlib's parser runs in a separate process, so that a crash is one line."""
    draw = random.Random(seed)
    content = bytearray((FOLDER / "conditional.pb").read_bytes())
    for _ in range(draw.randint(1, 3)):
        content[draw.randrange(len(content) // 3, len(content))] ^= draw.choice([1, 2, 4, 128])
    damaged = bytes(content[: draw.randrange(1, len(content))] if seed % 4 == 0 else content)
    refused = ""
    try:
        read_content(damaged, "damaged.pb")
    except InputError as error:
        refused = str(error)
    assert not refused or refused.startswith("damaged.pb: ")
    assert "\n" not in refused


def test_a_crash_of_the_parser_raises_one_line() -> None:
    with pytest.raises(MalformedInputError, match="parser crashed"):
        read_content(b"module {" * 200_000, "deep.mlir")


def test_unclosed_brackets_and_comments_take_linear_time() -> None:
    """Each text is quadratic for a parser that searches for the same end repeatedly."""
    for text in ("(" * 50_000, "/*" * 50_000, '"' * 50_001, "/* */" * 20_000, "{ \n" * 20_000, "a = (" * 20_000):
        _open(f"HloModule m\nENTRY e {{\n  a = f32[] parameter(0), x={text}\n}}\n")
        _open(f"{text}HloModule m\n")
        _open(f"HloModule m\n{text}")
        with suppress(InputError):
            read_content(f"{text}HloModule m\n".encode(), "long.hlo")
