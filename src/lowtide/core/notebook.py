"""HTML tables for notebooks."""

from collections.abc import Iterable
from html import escape

_LEFT = "style='text-align:left'"


def html_table(caption: str, rows: Iterable[tuple[str, str]]) -> str:
    body = "".join(f"<tr><th {_LEFT}>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows)
    return f"<table><caption {_LEFT}><b>{escape(caption)}</b></caption><tbody>{body}</tbody></table>"


def printable(text: str) -> str:
    """Escape line ends and other control characters."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
