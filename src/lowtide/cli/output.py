"""The result on stdout: text for people, or one JSON object."""

import click
import msgspec

from lowtide.report.kinds import Kind, to_object


def print_json(kind: Kind, shown: object) -> None:
    """Print one JSON object of a kind; keys keep their order, bytes are ints."""
    click.echo(msgspec.json.format(msgspec.json.encode(to_object(kind, shown)), indent=2).decode())
