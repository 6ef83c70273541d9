"""Plain columns of text, as wide as their widest cell."""

from collections.abc import Sequence


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    """Return lines with the header first; `numeric` says which columns stand to the right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines: list[str] = []
    for row in (header, *rows):
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
