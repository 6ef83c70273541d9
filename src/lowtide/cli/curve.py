"""`lowtide plan --curve`: what several budgets cost, and which one to take."""

from lowtide.api.opening import open_model
from lowtide.cli.output import print_json, print_page
from lowtide.cli.progress import Progress
from lowtide.core.errors import UsageError
from lowtide.core.techniques import NOT_ON_A_CURVE, refuse_ignored
from lowtide.engine.planning.plan_best_form import program_frontier
from lowtide.engine.planning.settings import PlanSettings
from lowtide.reporting.frontier import frontier_to_json, frontier_to_text


def show_curve(model: str, dims: dict[str, int], settings: PlanSettings, *, trust: bool, as_json: bool) -> None:
    """Print the frontier of memory and time of MODEL; raises UsageError for settings that it has no use for."""
    if settings.budget is not None or settings.transient or settings.scheduler is not None:
        raise UsageError("--curve makes plans for budgets of its own; leave out --budget, --transient and --scheduler")
    refuse_ignored(settings.techniques, NOT_ON_A_CURVE, "--curve knows recomputation only", "leave --curve out")
    if settings.host is not None:
        raise UsageError("--curve knows recomputation only; leave the host out")
    with Progress() as progress:
        progress(f"reading {model}")
        opened = open_model(model, dims, trust=trust)
        found = program_frontier(opened, settings, progress)
    if as_json:
        print_json("curve", frontier_to_json(found))
    else:
        print_page(frontier_to_text(opened.graph.name, found))
