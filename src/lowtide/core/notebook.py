"""HTML tables for notebooks."""

from collections.abc import Iterable
from html import escape

_LEFT = "style='text-align:left'"


def html_table(caption: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return an HTML table of names and values, escaped."""
    body = "".join(f"<tr><th {_LEFT}>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows)
    return f"<table><caption {_LEFT}><b>{escape(caption)}</b></caption><tbody>{body}</tbody></table>"


def printable(text: str) -> str:
    """Return text with line ends and other control characters escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
