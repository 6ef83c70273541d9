"""The result on stdout: text for people, or one JSON object."""

from typing import Any

import click
import msgspec


def print_json(fields: dict[str, Any]) -> None:
    """Print one JSON object; keys keep their order, bytes are ints."""
    click.echo(msgspec.json.format(msgspec.json.encode(fields), indent=2).decode())
