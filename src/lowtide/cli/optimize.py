"""`lowtide optimize`: plan, apply, verify, and run both: the main job."""

from pathlib import Path

import click

from lowtide.cli import host, options
from lowtide.cli.output import print_json
from lowtide.cli.plan import exit_code, to_the_end
from lowtide.cli.progress import Progress
from lowtide.effort import EffortName
from lowtide.errors import UsageError
from lowtide.frameworks.planning import plan_model
from lowtide.models import check_output, save_applied
from lowtide.report.planning import result_to_json, result_to_text


@click.command("optimize")
@options.model
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the applied program, or .plan.json[.gz].")
@click.option("--measure", is_flag=True, help="Run the program before and after, and measure its real peaks.")
@host.options
@options.planning
def command(
    model: str,
    output: Path | None,
    measure: bool,
    host_bandwidth: int | None,
    host_capacity: int | None,
    dims: dict[str, int],
    budget: str | None,
    allow: frozenset[str],
    in_place: bool,
    scheduler: str | None,
    costs: str,
    effort: EffortName,
    as_json: bool,
) -> int:
    """Lower the peak of MODEL: plan, verify, apply, write to OUTPUT, and measure if asked to.

    OUTPUT is what MODEL is (.onnx, .pt2, .graph.json[.gz]), or a plan file (.plan.json[.gz]) for any MODEL.
    """
    if output is None and not measure:
        raise UsageError("optimize has nothing to do with its plan; give -o OUTPUT, --measure, or both")
    with Progress() as progress:
        progress(f"reading {model}")
        opened = host.open_with_host(model, dims, host_bandwidth, host_capacity)
        if output is not None:
            check_output(output, opened)
        graph, result = plan_model(
            opened,
            budget=budget,
            allow=allow,
            in_place=in_place,
            scheduler=scheduler,
            costs=lambda graph: host.priced(graph, costs, allow),
            effort=effort,
            progress=progress,
        )
        if output is not None:
            progress(f"writing {output}")
            to_the_end(lambda: save_applied(opened, result.plan, output))
        measured = None
        if measure:
            progress("measuring: running the program before and after")
            measured = opened.measure(result.plan)
    if as_json:
        print_json(result_to_json(result, measured))
    else:
        click.echo(result_to_text(graph.name, result, measured))
    if measured is not None and not measured.outputs_equal:
        return 1
    return exit_code(result)
