"""A report as one HTML file with data, style and script inside; it loads nothing from the network."""

import re
from importlib.resources import files
from typing import Any

import msgspec

from lowtide.reporting.fields import to_object
from lowtide.reporting.page.facts import Facts
from lowtide.reporting.page.figures import figures
from lowtide.reporting.page.pictures import pictures
from lowtide.reporting.table import printable

_PLACE = re.compile(r"/\*\{\{([\w./]+)\}\}\*/")


def page(facts: Facts) -> bytes:
    """Return the HTML file of a report. The same facts give the same file."""
    data = {"figures": to_object("report", figures(facts)), "pictures": pictures(facts)}
    # names in the data must not open a tag
    written = msgspec.json.encode(_printable(data)).decode().replace("<", "\\u003c")

    def filled(place: re.Match[str]) -> str:
        return written if place[1] == "report" else _asset(place[1])

    return _PLACE.sub(filled, _asset("page.html")).encode()


def _asset(name: str) -> str:
    return (files("lowtide.reporting.page") / name).read_text(encoding="utf-8")


def _printable(value: Any) -> Any:
    """Escape control characters and lone surrogates in all texts of the data; names come from files."""
    if isinstance(value, str):
        return value if value.isprintable() else printable(value)
    if isinstance(value, dict):
        return {key: _printable(each) for key, each in value.items()}  # pyright: ignore
    if isinstance(value, list) and value and not isinstance(value[0], int | float):
        return [_printable(each) for each in value]  # pyright: ignore
    return value  # pyright: ignore
