"""`lowtide fits`: check whether a program fits a device, and with which techniques."""

import click

from lowtide.api.opening import open_for_device
from lowtide.cli import options
from lowtide.cli.output import show
from lowtide.cli.plan import exit_code
from lowtide.cli.progress import Progress
from lowtide.core.effort import EffortName
from lowtide.engine.costs import read_costs
from lowtide.engine.planning.settings import PlanSettings
from lowtide.reporting.fitting import fit_device


@click.command("fits")
@options.model
@click.option(
    "--device",
    metavar="SIZE|NAME|FILE",
    required=True,
    help="Memory of the device, like 24GiB, or a device by name, like h100; see lowtide plan.",
)
@options.dims
@options.trust
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
    in_place: bool,
    costs: str,
    effort: EffortName,
    host_bandwidth: int | None,
    host_capacity: int | None,
    as_json: bool,
) -> int:
    """Show whether MODEL fits a device, persistent buffers included, and the techniques it needs to fit.

    Exits with 1 if it fits with none of them. Offload is tried if --host-bandwidth is given.
    """
    host = options.host_of(host_bandwidth, host_capacity)
    settings = PlanSettings(costs=lambda graph: read_costs(costs, graph), effort=effort, in_place=in_place, host=host)
    with Progress() as progress:
        progress(f"reading {model}")
        opened, size = open_for_device(model, device, dims, host, trust=trust)
        fit = fit_device(opened, options.checked_size("--device", size), settings, progress, opened.planned)
    show("fits", as_json, fit.to_json, fit.to_text)
    return exit_code(fit.result)
