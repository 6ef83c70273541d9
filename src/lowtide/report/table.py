"""Plain columns of text, as wide as their widest cell."""

from collections.abc import Sequence

from lowtide.report.printable import printable

WIDTH = 80
"""Letters in a line of a page for people."""
_LEAST_WIDTH = 8
_CAPTION = 6
"""Where the rest of a long line stands."""


def shortened(text: str, most: int) -> str:
    """Return text of at most so many letters, cut in the middle: names of layers differ at their ends."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool], width: int | None = None
) -> str:
    """Return lines with the header first; `numeric` says which columns stand to the right.

    With a width, the widest of the other columns are cut until lines have no more letters, or as near as that comes.
    """
    table = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    if width is not None:
        texts = [column for column, right in enumerate(numeric) if not right]
        while sum(widths) + 2 * (len(widths) - 1) > width and texts:
            widest = max(texts, key=lambda column: widths[column])
            if widths[widest] <= _LEAST_WIDTH:
                break
            widths[widest] -= 1
        table = [[shortened(cell, most) for cell, most in zip(row, widths, strict=True)] for row in table]
    lines: list[str] = []
    for row in table:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def wrapped(text: str) -> list[str]:
    """Return text line by line, lines longer than `WIDTH` broken between words; names are never broken."""
    lines: list[str] = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()) + _CAPTION)
        lines += [line] if len(line) <= WIDTH else _broken(line, indent)
    return lines


def _broken(line: str, indent: str) -> list[str]:
    """Break a line where it becomes too long; columns within it stay as they are."""
    lines: list[str] = []
    while len(line) > WIDTH:
        at = line.rfind(" ", len(indent) + 1, WIDTH + 1)
        if at < 0:
            break
        lines.append(line[:at].rstrip())
        line = indent + line[at:].lstrip()
    return [*lines, line]
