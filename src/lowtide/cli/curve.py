"""`lowtide plan --curve`: what several budgets cost, and which one to take."""

import click

from lowtide.cli.output import print_json
from lowtide.cli.progress import Progress
from lowtide.costs import read_costs
from lowtide.effort import EffortName
from lowtide.memory_time import frontier
from lowtide.models import open_model
from lowtide.report.frontier import frontier_to_json, frontier_to_text


def show_curve(
    model: str,
    dims: dict[str, int],
    allow: frozenset[str],
    costs: str,
    effort: EffortName,
    *,
    in_place: bool,
    as_json: bool,
) -> None:
    """Print the frontier of memory and time of MODEL."""
    with Progress() as progress:
        progress(f"reading {model}")
        graph = open_model(model, dims).graph
        found = frontier(
            graph,
            reorder="reorder" in allow,
            in_place=in_place and "share" in allow,
            costs=read_costs(costs, graph),
            effort=effort,
            progress=progress,
        )
    if as_json:
        print_json(frontier_to_json(found))
    else:
        click.echo(frontier_to_text(graph.name, found))
