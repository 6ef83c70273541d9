"""`lowtide diff`: compare the memory of two programs or two plans."""

from pathlib import Path

import click

from lowtide.api.opening import open_model
from lowtide.api.verbs import diff, is_plan_file
from lowtide.cli import options
from lowtide.cli.output import show
from lowtide.cli.progress import Progress
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.plan_file import read_plan
from lowtide.reporting.difference import difference


@click.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@options.file("--plan-a", help="Compare A under this plan.")
@options.file("--plan-b", help="Compare B under this plan.")
@options.dims
@options.trust
@options.json
def command(
    before: str,
    after: str,
    plan_a: Path | None,
    plan_b: Path | None,
    dims: dict[str, int],
    trust: bool,
    as_json: bool,
) -> None:
    """Show new, removed and resized tensors from A to B, and the tensors that take more memory at the peak.

    A and B are models, or two plan files. Ops and buffers of models are matched by name. To compare two plans of one
    model in detail, give the model twice, with --plan-a and --plan-b.
    """
    if is_plan_file(before) and is_plan_file(after):
        plans = diff(before, after)
        show("diff_plans", as_json, lambda: plans, plans.to_text)
        return
    with Progress() as progress:
        first = _read(before, plan_a, dims, trust, progress)
        second = _read(after, plan_b, dims, trust, progress)
        found = difference(*first, *second)
    show("diff", as_json, lambda: found, found.to_text)


def _read(source: str, plan: Path | None, dims: dict[str, int], trust: bool, progress: Progress) -> tuple[Graph, Plan]:
    progress(f"reading {source}")
    model = open_model(source, dims, trust=trust)
    if plan is None:
        return model.graph, Plan.baseline(model.graph)
    progress(f"verifying {plan}")
    form, read = read_plan(plan, model, over_budget=True)
    return form.graph, read
