"""`lowtide report`: a plan as one page to look at, or as text."""

from pathlib import Path

import click

from lowtide.cli import options
from lowtide.cli.output import print_json, print_page
from lowtide.cli.outputs import save
from lowtide.cli.planned import Planned, plan_or_read
from lowtide.cli.progress import Progress
from lowtide.errors import UsageError
from lowtide.files import check_writable, write_bytes
from lowtide.planning.frontier import frontier
from lowtide.planning.settings import PlanSettings
from lowtide.report.page.facts import Facts
from lowtide.report.page.figures import figures
from lowtide.report.page.text import to_text
from lowtide.report.page.write import page


@click.command("report")
@options.model
@options.plan
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the page here (.html).")
@click.option("--text", "as_text", is_flag=True, help="Print the same facts as text.")
@click.option("--measure", is_flag=True, help="Run the program before and after, and show its real peaks.")
@click.option("--curve", is_flag=True, help="Show what several budgets cost, too.")
@options.planning
def command(
    model: str,
    plan_path: Path | None,
    output: Path | None,
    as_text: bool,
    measure: bool,
    curve: bool,
    dims: dict[str, int],
    trust: bool,
    settings: PlanSettings,
    as_json: bool,
) -> None:
    """Show a plan for MODEL, found as `lowtide plan` does or read from a file, beside the untouched program.

    The page is one file that needs no network.
    """
    if output is None and not as_text and not as_json:
        raise UsageError("a report goes somewhere: give -o REPORT.html, --text or --json")
    if output is not None:
        if output.suffix not in (".html", ".htm"):
            raise UsageError(f"cannot write a report to {output.name!r}; give a name that ends in .html")
        check_writable(output)
    with Progress() as progress:
        found = plan_or_read(model, plan_path, dims, settings, trust=trust, progress=progress)
        facts = _facts(found, settings, measure, curve, progress)
        if output is not None:
            progress(f"writing {output}")
            content = page(facts)
            save(output, lambda path: write_bytes(path, content))
        shown = figures(facts) if as_json else to_text(facts) if as_text else None
    if isinstance(shown, dict):
        print_json("report", shown)
    elif shown is not None:
        print_page(shown)
    else:
        click.echo(f"{output}: {facts.graph.name}, {facts.graph.n_buffers} buffers; open it in a browser")


def _facts(found: Planned, settings: PlanSettings, measure: bool, curve: bool, progress: Progress) -> Facts:
    """Gather what there is to say of a plan."""
    measured = points = None
    if measure:
        progress("measuring: running the program before and after")
        measured = found.model.measure(found.plan)
    if curve:
        points = frontier(
            found.graph,
            reorder="reorder" in settings.techniques,
            in_place=settings.takes_pairs,
            costs=settings.prices(found.graph),
            effort=settings.effort,
            progress=progress,
        )
    return Facts.of(
        found.graph,
        found.plan,
        prices=settings.prices(found.graph),
        result=found.result,
        measured=measured,
        frontier=points,
        untouched=found.model.graph,
    )
