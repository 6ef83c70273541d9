"""The result on stdout: a page for people, or one JSON object."""

import click
import msgspec

from lowtide.reporting.fields import Kind, to_object
from lowtide.reporting.table import wrapped


def print_page(text: str, *, err: bool = False) -> None:
    """Print lines for people; longer ones than the terminal is wide go on in the next line."""
    click.echo("\n".join(wrapped(text)), err=err)


def print_json(kind: Kind, shown: object) -> None:
    """Print one JSON object of a kind; keys keep their order, bytes are ints."""
    click.echo(msgspec.json.format(msgspec.json.encode(to_object(kind, shown)), indent=2).decode())
