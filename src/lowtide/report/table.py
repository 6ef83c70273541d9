"""Plain columns of text, as wide as their widest cell."""

from collections.abc import Sequence

from lowtide.report.printable import printable


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    """Return lines with the header first; `numeric` says which columns stand to the right."""
    table = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines: list[str] = []
    for row in table:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
