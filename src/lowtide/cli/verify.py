"""`lowtide verify`: check a saved plan against its program."""

from pathlib import Path
from typing import Any

import click

from lowtide.cli import host, options
from lowtide.cli.output import print_json
from lowtide.cli.progress import Progress
from lowtide.opening import open_model, read_plan
from lowtide.report.figures import format_by_space
from lowtide.report.printable import printable
from lowtide.search import CheckedBound, check_proof, read_proof_file
from lowtide.units import format_bytes


@click.command("verify")
@click.argument("plan", type=click.Path(path_type=Path))
@options.model
@options.dims
@options.trust
@click.option("--proof", "proof_path", type=click.Path(path_type=Path), help="Check this proof of the bound, too.")
@options.over_budget
@host.options
@options.json
def command(
    plan: Path,
    model: str,
    proof_path: Path | None,
    host_bandwidth: int | None,
    host_capacity: int | None,
    over_budget: bool,
    dims: dict[str, int],
    trust: bool,
    as_json: bool,
) -> None:
    """Check that PLAN computes what MODEL computes, within the memory it claims.

    A plan that was made with a host is one for MODEL and that host: name the same one. A plan that says itself that it
    is infeasible fails, unless that is allowed.
    """
    with Progress() as progress:
        progress(f"reading {model}")
        opened = open_model(model, dims, host.host_of(host_bandwidth, host_capacity), trust=trust)
        progress(f"verifying {plan}")
        graph, loaded = read_plan(plan, opened, over_budget=over_budget)
        checked: list[CheckedBound] = []
        if proof_path is not None:
            progress(f"checking {proof_path}")
            checked = check_proof(graph, read_proof_file(proof_path))
    if as_json:
        fields: dict[str, Any] = {
            "valid": True,
            "peak_bytes": loaded.peak_bytes,
            "arena_bytes": loaded.arena_bytes,
        }
        if proof_path is not None:
            fields["confirmed_bound_bytes"] = {bound.space: bound.confirmed_bytes for bound in checked}
            fields["not_rechecked"] = sum(len(bound.not_rechecked) for bound in checked)
        print_json(fields)
        return
    click.echo(f"{plan}: valid for {printable(graph.name)}, peak {format_by_space(loaded.peak_bytes)}")
    for bound in checked:
        click.echo(f"{proof_path}: no order needs less than {_confirmed(bound)}")


def _confirmed(bound: CheckedBound) -> str:
    text = f"{format_bytes(bound.confirmed_bytes)} in {printable(bound.space)}, confirmed"
    if not bound.not_rechecked:
        return text
    most = max(budget.at_least_bytes for budget in bound.not_rechecked)
    return f"{text}; the {format_bytes(most)} it claims rest on a search too large to repeat here"
