"""Print results on stdout: text, or one JSON object."""

from collections.abc import Callable

import click
import msgspec

from lowtide.reporting.fields import to_object
from lowtide.reporting.table import wrapped


def print_page(text: str, *, err: bool = False) -> None:
    """Print text, wrapped at the width of the terminal."""
    click.echo("\n".join(wrapped(text)), err=err)


def show(kind: str, as_json: bool, to_json: Callable[[], object], to_text: Callable[[], str]) -> None:
    if as_json:
        print_json(kind, to_json())
    else:
        print_page(to_text())


def print_json(kind: str, shown: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(to_object(kind, shown)), indent=2).decode())
