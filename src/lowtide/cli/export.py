"""`lowtide export`: write a plan in a format of other tools."""

from pathlib import Path

import click

from lowtide.api.outputs import save
from lowtide.cli import options
from lowtide.cli.output import print_json
from lowtide.cli.planned import plan_or_read
from lowtide.cli.progress import Progress
from lowtide.core.files import check_writable, write_bytes
from lowtide.engine.planning.settings import PlanSettings
from lowtide.reporting.export.table import ending_of, export


@click.command("export")
@options.model
@options.plan
@options.file("-o", "--output", required=True, help="Write here; the ending selects the format.")
@click.option("--space", metavar="NAME", help="Memory space of .csv and .svg; the first one by default.")
@options.planning
def command(
    model: str,
    plan_path: Path | None,
    output: Path,
    space: str | None,
    dims: dict[str, int],
    trust: bool,
    settings: PlanSettings,
    as_json: bool,
) -> None:
    """Write a plan for MODEL, a new one or that of --plan, for another tool.

    Formats: .pickle (PyTorch memory snapshot), .trace.json (trace for Perfetto and Chrome), .csv (live ranges for
    packers), .graph.json (the program), .dot (Graphviz), .svg (picture). Add .gz to compress.
    """
    ending = ending_of(output.name)
    check_writable(output)
    with Progress() as progress:
        found = plan_or_read(model, plan_path, dims, settings, trust=trust, progress=progress)
        progress(f"writing {output}")
        content = export(found.graph, found.plan, ending, space=space, prices=settings.prices(found.graph))
        save(output, lambda path: write_bytes(path, content))
    if as_json:
        print_json("export", {"output": str(output), "format": ending, "bytes": len(content)})
    else:
        click.echo(f"{output}: {found.graph.name}, {found.graph.n_buffers} buffers")
