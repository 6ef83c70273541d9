"""`lowtide report`: show a plan as an HTML page or as text."""

from dataclasses import replace
from pathlib import Path

import click

from lowtide.api.outputs import save
from lowtide.cli import options
from lowtide.cli.output import print_json, print_page
from lowtide.cli.planned import Planned, plan_or_read
from lowtide.cli.progress import Progress
from lowtide.core.errors import UsageError
from lowtide.core.files import write_bytes
from lowtide.core.techniques import NOT_ON_A_CURVE
from lowtide.engine.planning.plan_best_form import program_frontier
from lowtide.engine.planning.settings import PlanSettings
from lowtide.reporting.page.facts import Facts
from lowtide.reporting.page.figures import figures
from lowtide.reporting.page.text import to_text
from lowtide.reporting.page.write import check_page, page


@click.command("report")
@options.model
@options.plan
@options.file("-o", "--output", help="Write the HTML page here.")
@click.option("--text", "as_text", is_flag=True, help="Print the report as text.")
@click.option("--measure", is_flag=True, help="Run the program with and without the plan, and show both peaks.")
@click.option("--curve", is_flag=True, help="Also show the extra time of several budgets, with recomputation.")
@options.device
@options.planning
def command(
    model: str,
    plan_path: Path | None,
    output: Path | None,
    as_text: bool,
    measure: bool,
    curve: bool,
    device: str | None,
    dims: dict[str, int],
    trust: bool,
    settings: PlanSettings,
    as_json: bool,
) -> None:
    """Compare a plan for MODEL, a new one or that of --plan, with the unmodified program.

    The page is one file that needs no network.
    """
    if output is None and not as_text and not as_json:
        raise UsageError("no output given; add -o REPORT.html, --text or --json")
    if output is not None:
        check_page(output)
    with Progress() as progress:
        asked = _of_a_plan(settings, curve=curve)
        found = plan_or_read(model, plan_path, dims, asked, trust=trust, progress=progress, device=device)
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
    measured = points = None
    if measure:
        progress("measuring the program with and without the plan")
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
    """Return the plan's settings; without a budget, recomputation is only for the curve."""
    unused = {"recompute"} if curve and settings.budget is None else set[str]()
    return replace(settings, techniques=settings.techniques - unused)


def _of_a_curve(settings: PlanSettings) -> PlanSettings:
    techniques = settings.techniques - NOT_ON_A_CURVE
    return replace(settings, budget=None, transient=False, scheduler=None, host=None, techniques=techniques)
