"""Pages that run: their files are written, their commands and their Python run, and what they print is what is shown.

On a page,

- ` ```python file=NAME ` is a file that the reader saves;
- ` ```python ` is run, all blocks of a page in one module; ` ```text ` right after it is what that prints, and so are
  comments behind `print(...)`;
- ` ```console ` holds commands after `$ `, each followed by what it prints.

Where `...` stands in what is shown, anything may be printed. Spaces and line ends do not count.
"""

import doctest
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from lowtide.cli import main

_FENCE = re.compile(r"^```(\w+)?(?: file=(\S+))?[^\n`]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PROMISED = re.compile(r"^print\(.*\)  +# (.*)$", re.MULTILINE)
_LEAST_INTERRUPTED = 128
"""A command that a signal ends exits with more."""
_LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A block of code on a page."""

    language: str
    file: str | None
    text: str


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page."""
    return (Block(match[1] or "", match[2], match[3]) for match in _FENCE.finditer(page))


def run_page(path: Path, **given: object) -> int:
    """Run a page in the working directory and return how many commands and blocks ran; asserts what they print.

    The page may use the `given` names.
    """
    names: dict[str, object] = {"__name__": "page", **given}
    printed, count = "", 0
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.file is not None:
            Path(block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            printed = _output_of(lambda text=block.text: exec(compile(text, str(path), "exec"), names))
            if promised := _PROMISED.findall(block.text):
                _check("".join(f"{line}\n" for line in promised), printed, f"{path.name}: the comments of print")
            count += 1
        elif block.language == "text":
            _check(block.text, printed, f"{path.name}: the Python before")
        elif block.language == "console":
            for command, shown in _commands(block.text):
                _check(shown, _output_of(lambda command=command: _run(command)), command)
                count += 1
    return count


def _commands(text: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.replace("\\\n", " ").partition("\n")
        yield command, shown


def _run(command: str) -> None:
    """Run a command of a page in this process; what ends it from outside ends the tests, too, and is no failed page."""
    program, *arguments = shlex.split(command, comments=True)
    before = sys.argv
    try:
        if program == "python":
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
        else:
            assert program == "lowtide", command
            sys.argv = [program, *arguments]
            main()
    except SystemExit as done:
        if isinstance(done.code, int) and done.code > _LEAST_INTERRUPTED:
            raise KeyboardInterrupt from done
        if done.code:
            print(f"exit code {done.code}")
    finally:
        sys.argv = before


def _output_of(act: Callable[[], None]) -> str:
    """Return what is printed, without lines of progress."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(out):
        act()
    return "".join(line for line in out.getvalue().splitlines(keepends=True) if not line.endswith(" ...\n"))


def _check(shown: str, printed: str, what: str) -> None:
    assert doctest.OutputChecker().check_output(shown, printed, _LIKE), f"{what}\nshows\n{shown}\nprints\n{printed}"
