"""Tables, wrapped lines and figures for text output.

rich is imported on first use, so that planning in Python loads no terminal library.
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING

from lowtide.core.notebook import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.measure import Measurement

_WIDTH = 80
_MOST_WIDTH = 160
_LEAST_WIDTH = 8
_CAPTION = re.compile(r" *\S+(?: \S+)* {2,}")
"""The caption of a line. A continuation is indented to the value if the caption is short."""
_MOST_CAPTION = 24
_INDENT = 6
"""The indentation behind longer captions."""
_LEAST_TABLE = 60
_UNLIMITED = 100_000


def page_width() -> int:
    """Return the columns of text output: those of the terminal or `COLUMNS`, without limit in a pipe."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return min(shutil.get_terminal_size((_WIDTH, 24)).columns, _MOST_WIDTH)
    return _UNLIMITED


def table_width() -> int:
    """Return the columns of tables, which are unreadable in a narrow terminal."""
    return max(page_width(), _LEAST_TABLE)


class _Name:
    """A cell that is cut in the middle if its column is too narrow: names of layers differ at their ends."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_measure__(self, console: "Console", options: "ConsoleOptions") -> "Measurement":
        from rich.measure import Measurement
        from rich.text import Text

        wide = Measurement.get(console, options, Text(self._text, no_wrap=True)).maximum
        return Measurement(min(_LEAST_WIDTH, wide), wide)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        yield from console.render(Text(shortened(self._text, options.max_width), no_wrap=True), options)


def shortened(text: str, most: int) -> str:
    """Return the text, cut in the middle to at most `most` terminal columns."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= most:
        return text
    end = (most - 1) // 2
    last = next(tail for at in range(len(text) + 1) if cell_len(tail := text[at:]) <= end)
    return f"{set_cell_size(text, most - 1 - end).rstrip()}…{last}"


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool], width: int | None = None
) -> str:
    """Return a table with a header; `numeric` columns are right-aligned and never cut.

    With a `width`, the widest other columns are cut until lines fit, as far as possible.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

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
    """Return the lines of a text, broken between words at the page width."""
    width = page_width()
    return [part for line in text.split("\n") for part in _broken(line, _hanging(line), width)]


def _hanging(line: str) -> str:
    caption = _CAPTION.match(line)
    if caption is not None and caption.end() <= _MOST_CAPTION:
        return " " * caption.end()
    return " " * (len(line) - len(line.lstrip()) + _INDENT)


def _broken(line: str, indent: str, width: int) -> list[str]:
    from rich.cells import cell_len

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
    """Return the bytes that addresses add to the peak, per space: alignment and unused gaps."""
    return {space: count - peak[space] for space, count in arena.items()}


def format_ratio(figure: Mapping[str, int], base: Mapping[str, int]) -> str:
    """Return the ratio of two sums with three decimals, "-" if the base is 0."""
    total = sum(base.values())
    return f"{sum(figure.values()) / total:.3f}" if total else "-"
