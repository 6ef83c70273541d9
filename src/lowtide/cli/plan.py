"""`lowtide plan`: find a plan, or show the cost of several budgets (`--curve`)."""

from pathlib import Path

import click

from lowtide.api.opening import check_output, open_model
from lowtide.api.optimize import plan_kept_beside
from lowtide.api.outputs import save
from lowtide.cli import options
from lowtide.cli.interrupts import interrupted_code
from lowtide.cli.output import show
from lowtide.cli.progress import Progress
from lowtide.core.errors import UsageError
from lowtide.core.files import check_writable
from lowtide.core.progress import Report
from lowtide.core.techniques import NOT_ON_A_CURVE, refuse_ignored
from lowtide.engine.plan import write_plan_file
from lowtide.engine.planning.next_technique import next_technique
from lowtide.engine.planning.plan_best_form import program_frontier
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.search import write_proof_file
from lowtide.reporting.frontier import frontier_to_json, frontier_to_text
from lowtide.reporting.planning import result_to_json, result_to_text


def exit_code(result: Result) -> int:
    """Return 0, 1 for a missed budget, or `interrupted_code`."""
    if result.status == "interrupted":
        return interrupted_code()
    return 0 if result.shortfall is None else 1


@click.command("plan")
@options.model
@options.file("-o", "--output", help="Write the plan here (.plan.json[.gz]).")
@options.file("--proof", "proof_path", help="Write the proof of the lower bound here (.proof.json[.gz]).")
@click.option("--curve", is_flag=True, help="Show the extra time of several budgets, and the best trade-off, instead.")
@options.device
@options.planning
def command(
    model: str,
    output: Path | None,
    proof_path: Path | None,
    curve: bool,
    device: str | None,
    dims: dict[str, int],
    trust: bool,
    settings: PlanSettings,
    as_json: bool,
) -> int:
    """Find the plan with the lowest peak for MODEL, verify it and write it to a file."""
    if curve and device is not None:
        raise UsageError("--curve does not lower programs for a device; leave out --device")
    if curve:
        if output is not None or proof_path is not None:
            raise UsageError("--curve makes several plans; leave out -o and --proof")
        _show_curve(model, dims, settings, trust=trust, as_json=as_json)
        return 0
    with Progress() as progress:
        if output is not None:
            check_output(output)
        if proof_path is not None:
            check_writable(proof_path)
        progress(f"reading {model}")
        opened = open_model(model, dims, settings.host, trust=trust, device=device)
        with plan_kept_beside(output) as keep_best_plan:
            result = opened.planned(settings, progress, keep_best_plan)
            try:
                if output is not None:
                    progress(f"writing {output}")
                    save(output, lambda path: write_plan_file(result.plan, path, result.graph))
            finally:
                if proof_path is not None:
                    _save_proof(result, proof_path, progress)
        on_device = opened.on_device
        offer = None if on_device else next_technique(result.graph, result, settings, progress)
    show(
        "plan",
        as_json,
        lambda: result_to_json(result, offer, on_device),
        lambda: on_device.to_text(result) if on_device else result_to_text(result, offer=offer),
    )
    return exit_code(result)


def _save_proof(result: Result, path: Path, progress: Report) -> None:
    """Write the proof, if any; Ctrl-C ends the search for logs, and is raised after writing."""
    interrupted = False
    progress("recording the proof of the lower bound")
    try:
        proof = result.proof
    except KeyboardInterrupt:
        proof, interrupted = result.plain_proof, True
    if proof is not None:
        progress(f"writing {path}")
        save(path, lambda path: write_proof_file(proof, path))
    if interrupted:
        raise KeyboardInterrupt


def _show_curve(model: str, dims: dict[str, int], settings: PlanSettings, *, trust: bool, as_json: bool) -> None:
    if settings.budget is not None or settings.transient or settings.scheduler is not None:
        raise UsageError("--curve chooses its own budgets; leave out --budget, --transient and --scheduler")
    refuse_ignored(settings.techniques, NOT_ON_A_CURVE, "--curve supports only recomputation", "leave --curve out")
    if settings.host is not None:
        raise UsageError("--curve supports only recomputation; leave the host out")
    with Progress() as progress:
        progress(f"reading {model}")
        opened = open_model(model, dims, trust=trust)
        found = program_frontier(opened, settings, progress)
    show("curve", as_json, lambda: frontier_to_json(found), lambda: frontier_to_text(opened.graph.name, found))
