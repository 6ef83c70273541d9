"""`lowtide verify`: check a saved plan against its program."""

from pathlib import Path

import click

from lowtide.cli import options
from lowtide.cli.output import print_json
from lowtide.cli.progress import Progress
from lowtide.models import open_model
from lowtide.plan import read_plan_file
from lowtide.report.figures import format_by_space
from lowtide.report.printable import printable


@click.command("verify")
@click.argument("plan", type=click.Path(path_type=Path))
@options.model
@options.dims
@options.json
def command(plan: Path, model: str, dims: dict[str, int], as_json: bool) -> None:
    """Check that PLAN computes what MODEL computes, within the memory it claims."""
    with Progress() as progress:
        progress(f"reading {model}")
        graph = open_model(model, dims).graph
        progress(f"verifying {plan}")
        loaded = read_plan_file(plan, graph)
    if as_json:
        print_json({"valid": True, "peak_bytes": loaded.peak_bytes, "arena_bytes": loaded.arena_bytes})
    else:
        click.echo(f"{plan}: valid for {printable(graph.name)}, peak {format_by_space(loaded.peak_bytes)}")
