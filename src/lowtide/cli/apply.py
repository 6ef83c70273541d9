"""`lowtide apply`: apply a saved plan to its program."""

from pathlib import Path

import click

from lowtide.api.opening import check_annotated, open_model, save_applied
from lowtide.api.outputs import check_separate
from lowtide.cli import options
from lowtide.cli.output import print_json
from lowtide.cli.progress import Progress
from lowtide.core.units import format_by_space
from lowtide.engine.planning.plan_file import read_plan


@click.command("apply")
@click.argument("plan", type=click.Path(path_type=Path))
@options.model
@options.file("-o", "--output", required=True, help="Write the applied program here.")
@options.over_budget
@options.annotate
@options.dims
@options.force
@options.trust
@options.json
def command(
    plan: Path,
    model: str,
    output: Path,
    over_budget: bool,
    annotate: bool,
    dims: dict[str, int],
    force: bool,
    trust: bool,
    as_json: bool,
) -> None:
    """Verify PLAN against MODEL, and write MODEL with PLAN applied."""
    check_separate({"MODEL": model}, {"-o": output}, force=force)  # writing the plan over PLAN is harmless
    with Progress() as progress:
        progress(f"reading {model}")
        opened = open_model(model, dims, trust=trust, output=output)
        if annotate:
            check_annotated(opened, output)
        progress(f"verifying {plan}")
        _, loaded = read_plan(plan, opened, over_budget=over_budget)
        progress(f"writing {output}")
        save_applied(opened, loaded, output, annotate=annotate)
    if as_json:
        print_json("apply", {"output": str(output), "peak_bytes": loaded.peak_bytes})
    else:
        click.echo(f"{output}: {plan} applied, peak {format_by_space(loaded.peak_bytes)}")
