"""The one exception tree of lowtide.

    LowtideError                 every error lowtide raises on purpose
    ├── UsageError               the call itself is wrong: unknown scheduler, bad unit, contradicting options
    │   └── WriteError           a result cannot be written where it was to go
    ├── InputError               the input is unsupported or malformed
    │   ├── MalformedInputError  a file or object that breaks its own format
    │   ├── GraphError           a graph that is no valid program: a cycle, a dangling reference, a bad size
    │   └── UnsupportedError     valid input that lowtide cannot handle, with the way around it
    │       └── MissingExtraError    packages that an extra of lowtide brings do not load (an ImportError, too)
    ├── PlanError                a plan, or its proof, that is wrong for its graph
    │   ├── FingerprintError     the plan was made for another graph
    │   ├── VerificationError    a step of the plan breaks a rule of execution
    │   └── ProofError           a proof does not show the bound that it claims
    └── RewriteError             lowtide itself broke a program that it rewrote: a defect to report

Every message is one line and says what is wrong, where, and what to do.
"""

import re

_LONGEST_MESSAGE = 4000
_QUOTED = re.compile(r"""(?<!\w)(['"`])(.*?)\1(?!\w)""", re.DOTALL)
"""What stands in quotes, as names do; no apostrophe opens one."""
_LONGEST_NAME = 200


class LowtideError(Exception):
    """Base of every error that lowtide raises on purpose."""

    exit_code: int = 1
    """What the command line exits with when this error ends it."""

    def __init__(self, message: str) -> None:
        """Keep the message to one printable line of bounded length, whatever names and parser texts went into it.

        Long names in quotes are cut in the middle, so that one sees what is wrong and what to do.
        """
        message = _QUOTED.sub(lambda name: _cut(name[0], _LONGEST_NAME), _cut(message, _LONGEST_MESSAGE))
        super().__init__("".join(letter if letter.isprintable() else " " for letter in message))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]} [...] {text[-most // 2 :]}"


def one_line(error: BaseException, most: int = 300) -> str:
    """Return the text of somebody else's exception as one line of at most so many characters, never empty."""
    return " ".join(str(error).split())[:most] or "no message"


class UsageError(LowtideError):
    """The call itself is wrong, whatever the input holds."""

    exit_code = 2


class WriteError(UsageError):
    """A result cannot be written where it was to go."""

    exit_code = 4


class InputError(LowtideError):
    """The input is unsupported or malformed."""

    exit_code = 3


class MalformedInputError(InputError):
    """A file or object breaks its own format."""


class GraphError(InputError):
    """A graph is no valid program."""


class UnsupportedError(InputError):
    """The input is valid, but lowtide cannot handle it."""


class MissingExtraError(UnsupportedError, ImportError):
    """What was asked for needs packages that an extra of lowtide brings, and they do not load."""

    def __init__(self, extra: str, reason: str) -> None:
        """`reason` says why the packages of the extra do not load."""
        super().__init__(
            f"this needs lowtide[{extra}], which does not load ({reason}); "
            f"install it with: pip install 'lowtide[{extra}]'"
        )


class PlanError(LowtideError):
    """A plan, or its proof, is wrong for its graph."""


class FingerprintError(PlanError):
    """A plan was made for another graph."""

    exit_code = 3


class VerificationError(PlanError):
    """A step of a plan breaks a rule of execution."""


class ProofError(PlanError):
    """A proof does not show the bound that it claims."""


class RewriteError(LowtideError):
    """Lowtide broke a program that it rewrote."""
