"""Print results on stdout: text, or one JSON object."""

import click
import msgspec

from lowtide.reporting.fields import Kind, to_object
from lowtide.reporting.table import wrapped


def print_page(text: str, *, err: bool = False) -> None:
    """Print text, wrapped at the width of the terminal."""
    click.echo("\n".join(wrapped(text)), err=err)


def print_json(kind: Kind, shown: object) -> None:
    """Print one JSON object of a kind."""
    click.echo(msgspec.json.format(msgspec.json.encode(to_object(kind, shown)), indent=2).decode())
