"""`lowtide inspect`: show the peak, its lower bound and the tensors at it."""

import click

from lowtide.api.opening import open_model
from lowtide.api.optimize import runtime_outlook
from lowtide.cli import options
from lowtide.cli.output import print_page, show
from lowtide.cli.progress import Progress
from lowtide.core.effort import EffortName
from lowtide.reporting.inspection import Inspection
from lowtide.reporting.recorded import recorded_to_text


@click.command("inspect")
@options.analysis
def command(model: str, dims: dict[str, int], trust: bool, in_place: bool, effort: EffortName, as_json: bool) -> None:
    """Show the peak of the unmodified MODEL, the tensors alive at the peak, and what is not modeled.

    A memory snapshot of PyTorch shows its peak by source line, fragmentation, and a bound on what a plan can save.
    """
    with Progress() as progress:
        progress(f"reading {model}")
        opened = open_model(model, dims, trust=trust)
    graph, recorded = opened.graph, opened.recorded
    if recorded and not as_json:
        print_page(recorded_to_text(graph.name, recorded))
        return
    with Progress() as progress:
        progress(f"inspecting {graph.n_ops} ops")
        inspection = Inspection.of(graph, in_place=in_place, effort=effort, progress=progress)
        outlook = runtime_outlook(opened, inspection.best)
    show("inspect", as_json, lambda: inspection.to_json(outlook, recorded), lambda: inspection.to_text(outlook))
