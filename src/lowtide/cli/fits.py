"""`lowtide fits`: check whether a program fits a device, and with which techniques."""

from typing import Any, get_args

import click

from lowtide.api.fitting import SizeOptions, fit_program
from lowtide.cli import options
from lowtide.cli.interrupts import interrupted_code
from lowtide.cli.output import print_json, print_page, show
from lowtide.cli.plan import exit_code
from lowtide.cli.progress import Progress
from lowtide.core.effort import EffortName
from lowtide.core.techniques import Techniques
from lowtide.engine.costs import devices
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.training_steps import OptimizerName, PrecisionName
from lowtide.reporting.fitting import DeviceFit
from lowtide.reporting.fitting_sizes import Axis, FitTable

_SIZES = ("batch", "sequence", "largest", "optimizer", "precision")


@click.command("fits")
@options.model
@click.option(
    "--device",
    metavar="NAME|SIZE|FILE",
    required=True,
    help=f"A device by name ({', '.join(devices())}, mps), its usable memory, like 24GiB, or a JSON file.",
)
@click.option("--batch", type=click.IntRange(min=1), help="Batch size of a training step; by default 1, 2, 4, ...")
@click.option("--sequence", type=click.IntRange(min=1), help="Tokens per row of a language model.")
@click.option("--largest", type=click.Choice(get_args(Axis)), help="Find the largest batch or sequence that fits.")
@click.option("--optimizer", type=click.Choice(get_args(OptimizerName)), help="Optimizer; by default adamw.")
@click.option(
    "--precision",
    type=click.Choice(get_args(PrecisionName)),
    help="Precision of weights and activations, by default float32; amp computes in bfloat16.",
)
@options.dims
@options.trust
@options.allow("all, one after the other")
@options.in_place
@options.costs
@options.effort
@options.host_options
@options.json
def command(
    model: str,
    device: str,
    dims: dict[str, int],
    trust: bool,
    techniques: Techniques | None,
    in_place: bool,
    costs: str,
    effort: EffortName,
    host_bandwidth: int | None,
    host_capacity: int | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Show whether MODEL fits a device, persistent buffers included, and the techniques it needs to fit.

    For a training step of PyTorch, show that by batch size, and the code to use next. MODEL may then also be a
    config.json of Hugging Face, a folder with one, the id of a model in its local cache, or the name of a model in
    timm. No weights are needed.

    Techniques are tried one after the other, --allow restricts them.

    Exits with 1 if it fits with none of them. For other programs, offload is tried if --host-bandwidth is given.
    """
    host = options.host_of(host_bandwidth, host_capacity)
    settings = PlanSettings(costs=options.pricing(costs), effort=effort, in_place=in_place, host=host)
    sizes = SizeOptions(**{name: given[name] for name in _SIZES})
    with Progress() as progress:
        progress(f"reading {model}")
        fit = fit_program(model, device, sizes, settings, dims, trust=trust, report=progress, allow=techniques)
    if isinstance(fit, DeviceFit):
        show("fits", as_json, fit.to_json, fit.to_text)
        return exit_code(fit.result)
    return _show_table(fit, as_json=as_json)


def _show_table(table: FitTable, *, as_json: bool) -> int:
    """Print a table and the code to use next, which is never wrapped."""
    if as_json:
        print_json("fits_sizes", table.to_json())
    else:
        print_page(table.to_text())
        for line in ("", *table.code) if table.code else ():
            click.echo(line)
    if table.is_interrupted:
        return interrupted_code()
    return 0 if table.fits else 1
