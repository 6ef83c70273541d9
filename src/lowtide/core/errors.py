"""The exceptions of lowtide and helpers for their messages.

    LowtideError
    ├── UsageError
    │   └── WriteError
    ├── InputError
    │   ├── MalformedInputError
    │   ├── GraphError
    │   └── UnsupportedError
    │       └── MissingExtraError (also an ImportError)
    ├── PlanError
    │   ├── FingerprintError
    │   ├── VerificationError
    │   └── ProofError
    └── RewriteError

Every message is one line: the problem, the place, and the remedy.
"""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_LONGEST_MESSAGE = 4000
_QUOTED = re.compile(r"""(?<!\w)(['"`])(.*?)\1(?!\w)""", re.DOTALL)
"""An apostrophe does not open a quotation."""
_LONGEST_NAME = 200
_SHORTEST_PART = 2
"""Length of the shortest name that is recognized within another."""


class LowtideError(Exception):
    """Base of all errors that lowtide raises on purpose."""

    exit_code: int = 1
    """Exit code of the command line."""

    def __init__(self, message: str) -> None:
        """Store the message as one printable line of bounded length."""
        message = _QUOTED.sub(lambda name: _cut(name[0], _LONGEST_NAME), _cut(message, _LONGEST_MESSAGE))
        super().__init__("".join(letter if letter.isprintable() else " " for letter in message))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]} [...] {text[-most // 2 :]}"


def one_line(error: BaseException, most: int = 300) -> str:
    """Return an exception's text as one non-empty line."""
    return " ".join(str(error).split())[:most] or "no message"


def named_type(value: object) -> str:
    """Return the type of a value with its article: "an int"."""
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the message for an unknown name, with the closest and all known ones."""
    names = list(known)
    near = _closest(str(name), names)
    meant = ";" if near is None else f"; did you mean {near!r}?"
    return f"unknown {kind} {name!r}{meant} choose one of {', '.join(names)}"


def _closest(name: str, names: Sequence[str]) -> str | None:
    by_letters = {_letters(each): each for each in names}
    given = _letters(name)
    if given in by_letters:
        return by_letters[given]
    if similar := get_close_matches(name.lower(), names, n=1):
        return similar[0]
    within = [each for each in by_letters if len(each) >= _SHORTEST_PART and each in given]
    around = [each for each in by_letters if len(given) >= _SHORTEST_PART and given in each]
    return by_letters[max(within, key=len)] if within else by_letters[around[0]] if around else None


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


class UsageError(LowtideError):
    """The call is wrong: an unknown name, a bad unit, contradicting options."""

    exit_code = 2


class WriteError(UsageError):
    """A result cannot be written."""

    exit_code = 4


class InputError(LowtideError):
    """The input is unsupported or malformed."""

    exit_code = 3


class MalformedInputError(InputError):
    """A file or object violates its format."""


class GraphError(InputError):
    """A graph is invalid: a cycle, a dangling reference, a bad size."""


class UnsupportedError(InputError):
    """Valid input that lowtide cannot handle."""


class MissingExtraError(UnsupportedError, ImportError):
    """An optional dependency cannot be imported."""

    def __init__(self, extra: str, reason: str) -> None:
        super().__init__(
            f"this needs lowtide[{extra}], which cannot be imported ({reason}); "
            f"install it with: pip install 'lowtide[{extra}]'"
        )


class PlanError(LowtideError):
    """A plan or proof is wrong for its graph."""


class FingerprintError(PlanError):
    """A plan was made for another graph."""

    exit_code = 3


class VerificationError(PlanError):
    """A step violates a rule of execution."""


class ProofError(PlanError):
    """A proof does not show its bound."""


class RewriteError(LowtideError):
    """Lowtide broke a program while rewriting it: a bug to report."""
