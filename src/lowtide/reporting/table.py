"""Tables, wrapped lines and figures for text output, as wide as the terminal, or 80 columns without one."""

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from io import StringIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_WIDTH = 80
_MOST_WIDTH = 160
"""Longer lines are hard to read."""
_LEAST_WIDTH = 8
_CAPTION = re.compile(r" *\S+(?: \S+)* {2,}")
"""What stands before the value of a line; where that is long, the rest stands beneath the value ..."""
_MOST_CAPTION = 24
_INDENT = 6
"""... else, and where a line has no caption, so far in."""
_UNLIMITED = 100_000


def page_width() -> int:
    """Return how many letters a line of a page for people has."""
    return min(shutil.get_terminal_size((_WIDTH, 24)).columns, _MOST_WIDTH) if sys.stdout.isatty() else _WIDTH


class _Name:
    """A cell that is cut in the middle where its column is too narrow: names of layers differ at their ends."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        wide = Measurement.get(console, options, Text(self._text, no_wrap=True)).maximum
        return Measurement(min(_LEAST_WIDTH, wide), wide)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from console.render(Text(shortened(self._text, options.max_width), no_wrap=True), options)


def shortened(text: str, most: int) -> str:
    """Return text of at most so many columns of a terminal, cut in the middle."""
    if cell_len(text) <= most:
        return text
    end = (most - 1) // 2
    last = next(tail for at in range(len(text) + 1) if cell_len(tail := text[at:]) <= end)
    return f"{set_cell_size(text, most - 1 - end).rstrip()}…{last}"


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool], width: int | None = None
) -> str:
    """Return lines with the header first; `numeric` says which columns stand to the right, and are never cut.

    With a width, the widest of the other columns are cut until lines have no more letters, or as near as that comes.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for caption, right in zip(header, numeric, strict=True):
        table.add_column(Text(caption), justify="right" if right else "left", no_wrap=right)
    for row in rows:
        cells = [printable(cell) for cell in row]
        table.add_row(*(Text(cell) if right else _Name(cell) for cell, right in zip(cells, numeric, strict=True)))
    page = Console(file=StringIO(), width=width or _UNLIMITED, color_system=None, force_terminal=False)
    with page.capture() as lines:
        page.print(table)
    return "\n".join(line.rstrip() for line in lines.get().splitlines())


def wrapped(text: str) -> list[str]:
    """Return text line by line, lines longer than the page broken between words; names are never broken."""
    width = page_width()
    return [part for line in text.split("\n") for part in _broken(line, _hanging(line), width)]


def _hanging(line: str) -> str:
    """Return what the rest of a long line begins with."""
    caption = _CAPTION.match(line)
    if caption is not None and caption.end() <= _MOST_CAPTION:
        return " " * caption.end()
    return " " * (len(line) - len(line.lstrip()) + _INDENT)


def _broken(line: str, indent: str, width: int) -> list[str]:
    """Break a line where it becomes too long; columns within it stay as they are."""
    lines: list[str] = []
    while cell_len(line) > width:
        at = line.rfind(" ", len(indent) + 1, width + 1)
        at = line.find(" ", max(width, len(indent))) if at < 0 else at
        if at < 0:
            break
        lines.append(line[:at].rstrip())
        line = indent + line[at:].lstrip()
    return [*lines, line]


def fragmentation(arena: Mapping[str, int], peak: Mapping[str, int]) -> dict[str, int]:
    """Return what addresses add to the peak, per space: alignment, and holes that nothing fits."""
    return {space: count - peak[space] for space, count in arena.items()}


def format_ratio(figure: Mapping[str, int], base: Mapping[str, int]) -> str:
    """Write the sum of one set of figures as a multiple of another, with three decimals; "-" where the base is 0."""
    total = sum(base.values())
    return f"{sum(figure.values()) / total:.3f}" if total else "-"


def printable(text: str) -> str:
    """Return text in which line ends, escape sequences and other control characters are spelled out."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
