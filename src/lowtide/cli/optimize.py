"""`lowtide optimize`: plan, verify and apply, write the result, and measure it."""

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from lowtide.api.opening import check_annotated, open_model
from lowtide.api.optimize import Job, Target, optimize_model
from lowtide.api.outputs import save
from lowtide.cli import options
from lowtide.cli.output import show
from lowtide.cli.plan import exit_code
from lowtide.cli.progress import Progress
from lowtide.core.errors import UsageError
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.model import Model
from lowtide.frameworks.tensorflow.grappler.levels import LEVELS
from lowtide.reporting.planning import level_to_json, level_to_text
from lowtide.reporting.table import page_width


@click.command("optimize")
@options.model
@options.file("-o", "--output", help="Write the applied program, or .plan.json[.gz].")
@click.option("--measure", is_flag=True, help="Run the program with and without the plan, and measure both peaks.")
@click.option(
    "--level",
    metavar="LEVEL",
    help=f"TensorFlow: rewrite like Grappler at a level ({', '.join(LEVELS)}; original:LEVEL for exactly Grappler's "
    "result). ONNX: plan MODEL as optimized by its runtime (none, basic, extended, all; by default the highest level "
    "with bit-equal results on all processors if OUTPUT is an .onnx file).",
)
@click.option(
    "--for-this-machine",
    is_flag=True,
    help="ONNX: plan MODEL with all optimizations of its runtime, as fast as that. Convolutions may get the layout of "
    "this kind of processor; lowtide's session then refuses the file elsewhere.",
)
@click.option(
    "--for",
    "target",
    type=click.Choice(["any-runtime", "lowtide-session"]),
    default="any-runtime",
    show_default=True,
    help="Runtime of OUTPUT. A file that would need more memory in a runtime with its own order is written for "
    "lowtide's session only.",
)
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="NAME=SIZE|NAME",
    help="Memory of a device, for --level; repeatable. Or the absent device to lower MODEL for, as in lowtide plan.",
)
@options.annotate
@options.planning
def command(
    model: str,
    output: Path | None,
    measure: bool,
    level: str | None,
    for_this_machine: bool,
    target: Target,
    devices: tuple[str, ...],
    annotate: bool,
    dims: dict[str, int],
    trust: bool,
    settings: PlanSettings,
    as_json: bool,
) -> int:
    """Lower the peak of MODEL: plan, verify, apply, write to OUTPUT and, with --measure, measure.

    OUTPUT has the format of MODEL (.onnx, .pt2, .pb, .pbtxt, .hlo, .graph.json[.gz]; .json[.gz] for an Inductor
    export), or is a plan file (.plan.json[.gz]) for any MODEL.
    """
    device = next(iter(devices), None) if level is None and len(devices) == 1 else None
    if devices and level is None and (device is None or "=" in device):
        raise UsageError("--device NAME=SIZE needs --level; give a level, or --budget instead")
    if output is None and not measure:
        raise UsageError("no use for the plan; give -o OUTPUT, --measure, or both")
    with Progress() as progress:
        progress(f"reading {model}")
        opened = open_model(model, dims, settings.host, trust=trust, output=output, device=device)
    if annotate:
        check_annotated(opened, output)
    if level is not None and not opened.is_reordered_by_runtime and not for_this_machine:
        return rewrite_at_level(opened, output, measure, level, devices, as_json)
    if devices and device is None:
        raise UsageError(f"--device is for --level, which {model} does not have; leave it out")
    job = Job(
        settings=settings,
        output=output,
        measure=measure,
        level=level,
        for_this_machine=for_this_machine,
        target=target,
        annotate=annotate,
    )
    with Progress() as progress:
        done = optimize_model(opened, job, progress, lambda line: click.echo(f"lowtide: {line}", err=True))
    show("optimize", as_json, done.to_json, done.to_text)
    if sys.stdout.isatty() and not as_json:
        click.echo("\n".join(["", *done.result.picture().lines(page_width())]))
    return exit_code(done.result) if done.is_sound else 1


def rewrite_at_level(
    opened: Model, output: Path | None, measure: bool, level: str, devices: Iterable[str], as_json: bool
) -> int:
    """Rewrite a program at a level of its framework's optimizer and write it; return the exit code."""
    if output is None:
        raise UsageError("--level rewrites the program; give -o OUTPUT")
    if measure:
        raise UsageError("--measure is for plans; measure the rewritten file with `lowtide optimize OUTPUT --measure`")
    capacities = dict(_capacity(each) for each in devices)
    with Progress() as progress:
        progress(f"rewriting at level {level}")
        rewritten = opened.rewritten(level, capacities)
        save(output, rewritten.write)
    show("level", as_json, lambda: level_to_json(level, rewritten), lambda: level_to_text(level, rewritten))
    return 0


def _capacity(text: str) -> tuple[str, str]:
    name, sign, size = text.rpartition("=")
    if not sign or not name:
        raise UsageError(f"--device {text!r} is not NAME=SIZE, like /gpu:0=4GiB")
    return name, size
