"""`lowtide optimize`: plan, apply, verify, and run both: the main job."""

from pathlib import Path

import click

from lowtide.api.opening import check_annotated, open_model, save_applied
from lowtide.cli import options
from lowtide.cli.levels import at_level
from lowtide.cli.output import print_json, print_page
from lowtide.cli.outputs import save
from lowtide.cli.plan import exit_code
from lowtide.cli.progress import Progress
from lowtide.cli.runtime import as_it_runs, check_order, runtime_report
from lowtide.cli.so_far import kept_beside
from lowtide.core.errors import UsageError
from lowtide.engine.plan import write_plan_file
from lowtide.engine.planning.chunked import plan_model
from lowtide.engine.planning.next_technique import NextTechnique, next_technique
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.model import HasCompiler, MayNotRun, Measurement, Model, OrdersItself, RunByRuntime
from lowtide.frameworks.tensorflow.grappler import LEVELS
from lowtide.reporting.fields import OptimizeFields, RuntimeFields
from lowtide.reporting.planning import compiled_to_text, measured_to_json, result_to_json, result_to_text
from lowtide.reporting.runtime import RuntimeReport


@click.command("optimize")
@options.model
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the applied program, or .plan.json[.gz].")
@click.option("--measure", is_flag=True, help="Run the program before and after, and measure its real peaks.")
@click.option(
    "--level",
    metavar="LEVEL",
    help=f"Do what the framework's own optimizer does at a level (TensorFlow: {', '.join(LEVELS)}; original:LEVEL is "
    "Grappler's to the letter), or plan what its runtime makes of MODEL (ONNX: none, basic, extended, all; by default "
    "the highest that keeps all bits, where OUTPUT is an .onnx file).",
)
@click.option(
    "--for",
    "target",
    type=click.Choice(["any-runtime", "lowtide-session"]),
    default="any-runtime",
    show_default=True,
    help="Who will run OUTPUT; a file that a runtime with an order of its own would run worse is only written for "
    "lowtide's session.",
)
@click.option(
    "--device", "devices", multiple=True, metavar="NAME=SIZE", help="What a device holds, for --level; repeatable."
)
@options.annotate
@options.planning
def command(
    model: str,
    output: Path | None,
    measure: bool,
    level: str | None,
    target: str,
    devices: tuple[str, ...],
    annotate: bool,
    dims: dict[str, int],
    trust: bool,
    settings: PlanSettings,
    as_json: bool,
) -> int:
    """Lower the peak of MODEL: plan, verify, apply, write to OUTPUT, and measure if asked to.

    OUTPUT is what MODEL is (.onnx, .pt2, .pb, .pbtxt, .hlo, .graph.json[.gz]; .json[.gz] for an export of Inductor),
    or a plan file (.plan.json[.gz]) for any MODEL.
    """
    if devices and level is None:
        raise UsageError("--device says what a device holds for --level; give a level, or a --budget instead")
    if output is None and not measure:
        raise UsageError("optimize has nothing to do with its plan; give -o OUTPUT, --measure, or both")
    with Progress() as progress:
        progress(f"reading {model}")
        opened = open_model(model, dims, settings.host, trust=trust, output=output)
    if annotate:
        check_annotated(opened, output)
    if measure and isinstance(opened, MayNotRun):
        opened.check_measurable()
    if level is not None and not isinstance(opened, RunByRuntime):
        return at_level(opened, model, output, measure, level, devices, as_json)
    if devices:
        raise UsageError(f"--device says what a device holds for a level, which {model} does not ask for")
    with Progress() as progress:
        opened = as_it_runs(opened, level, output, progress)
        with kept_beside(output) as keep:
            graph, result = plan_model(opened, settings, progress, keep)
            check_order(opened, result, output, target)
            measured, alone = None, None
            if isinstance(opened, OrdersItself):  # what was measured tells what is to be written
                measured = _measure(opened, result, progress) if measure else None
                alone = opened.as_good_as(result.plan, result.budget.allowed[graph.spaces[0].name], measured)
            if output is not None:
                progress(f"writing {output}")

                def rescue(folder: Path) -> Path:
                    plan_file = folder / "rescued.plan.json"
                    write_plan_file(result.plan, plan_file, graph)
                    return plan_file

                if isinstance(opened, OrdersItself) and alone is not None and output.name.endswith(opened.file_endings):
                    save(output, opened.save_as_it_stands)
                else:
                    save(output, lambda path: save_applied(opened, result.plan, path, annotate=annotate), rescue)
        offer = next_technique(graph, result, settings, progress)
        if measure and measured is None:
            measured = _measure(opened, result, progress)
        beside = runtime_report(opened, result, measured, progress)
        compiled = opened.compiled_memory(result.plan) if measure and isinstance(opened, HasCompiler) else ()
    if as_json:
        shown = _to_json(result, measured, offer, beside)
        if isinstance(opened, OrdersItself):
            shown["left_alone"] = alone
        if compiled:
            shown["compiled"] = compiled
        print_json("optimize", shown)
    else:
        print_page(result_to_text(graph.name, result, measured, offer))
        for line in map(compiled_to_text, compiled):
            print_page(line)
        if alone is not None:
            print_page(f"  not applied      {alone}")
        if beside is not None:
            print_page(beside.to_text())
    if measured is not None and not (measured.outputs_equal or measured.outputs_near):
        return 1
    if beside is not None and beside.doubts:
        return 1
    return exit_code(result)


def _to_json(
    result: Result, measured: Measurement | None, offer: NextTechnique | None, beside: RuntimeReport | None
) -> OptimizeFields:
    runtime = RuntimeFields() if beside is None else beside.to_json()
    return {**result_to_json(result, offer), **measured_to_json(measured), **runtime}


def _measure(opened: Model, result: Result, progress: Progress) -> Measurement:
    progress("measuring: running the program before and after")
    return opened.measure(result.plan)
