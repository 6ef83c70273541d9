"""`lowtide report`: a plan as one page to look at, or as text."""

from dataclasses import replace
from pathlib import Path

import click

from lowtide.api.outputs import save
from lowtide.cli import options
from lowtide.cli.output import print_json, print_page
from lowtide.cli.planned import Planned, plan_or_read
from lowtide.cli.progress import Progress
from lowtide.core.errors import UsageError
from lowtide.core.files import check_writable, write_bytes
from lowtide.core.techniques import NOT_ON_A_CURVE
from lowtide.engine.planning.plan_best_form import program_frontier
from lowtide.engine.planning.settings import PlanSettings
from lowtide.reporting.page.facts import Facts
from lowtide.reporting.page.figures import figures
from lowtide.reporting.page.text import to_text
from lowtide.reporting.page.write import page


@click.command("report")
@options.model
@options.plan
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the page here (.html).")
@click.option("--text", "as_text", is_flag=True, help="Print the same facts as text.")
@click.option("--measure", is_flag=True, help="Run the program before and after, and show its real peaks.")
@click.option("--curve", is_flag=True, help="Show what several budgets cost, too, with recomputation.")
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
        found = plan_or_read(model, plan_path, dims, _of_a_plan(settings, curve=curve), trust=trust, progress=progress)
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
        points = program_frontier(found.model, _of_a_curve(settings), progress)
    return Facts.of(
        found.graph,
        found.plan,
        prices=settings.prices(found.graph),
        result=found.result,
        measured=measured,
        frontier=points,
        unmodified=found.model.graph,
    )


def _of_a_plan(settings: PlanSettings, *, curve: bool) -> PlanSettings:
    """Return the settings of the plan itself: recomputation may be allowed for the curve alone."""
    for_nothing = {"recompute"} if curve and settings.budget is None else set[str]()
    return replace(settings, techniques=settings.techniques - for_nothing)


def _of_a_curve(settings: PlanSettings) -> PlanSettings:
    """Return the settings of a curve, which makes plans for budgets of its own and copies nothing."""
    techniques = settings.techniques - NOT_ON_A_CURVE
    return replace(settings, budget=None, transient=False, scheduler=None, host=None, techniques=techniques)
