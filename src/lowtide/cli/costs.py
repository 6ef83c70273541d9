"""`lowtide costs`: time every op on this machine, for `--costs`."""

from pathlib import Path

import click

from lowtide.api.opening import open_model
from lowtide.api.outputs import check_separate, save
from lowtide.cli import options
from lowtide.cli.output import show
from lowtide.cli.progress import Progress
from lowtide.core.errors import UsageError
from lowtide.core.files import check_writable
from lowtide.engine.costs import write_costs_file
from lowtide.reporting.costs import costs_to_json, costs_to_text

_ENDINGS = (".json", ".json.gz")


@click.command("costs")
@options.model
@options.file("-o", "--output", required=True, help="Write the costs here (.costs.json[.gz]).")
@options.dims
@options.force
@options.trust
@options.json
def command(model: str, output: Path, dims: dict[str, int], force: bool, trust: bool, as_json: bool) -> None:
    """Time every op of MODEL, a PyTorch program, on its device, and write a costs file.

    With --costs FILE, plans use these times as prices.
    """
    if not output.name.endswith(_ENDINGS):
        raise UsageError(f"cannot write costs to {output.name!r}; give a name that ends in {', '.join(_ENDINGS)}")
    check_separate({"MODEL": model}, {"-o": output}, force=force)
    check_writable(output)
    with Progress() as progress:
        progress(f"reading {model}")
        opened = open_model(model, dims, trust=trust)
        graph = opened.graph
        progress(f"timing {graph.n_ops} ops")
        prices = opened.measure_costs()
        progress(f"writing {output}")
        save(output, lambda path: write_costs_file(graph, prices, path))
    show("costs", as_json, lambda: costs_to_json(graph, prices), lambda: costs_to_text(graph, prices))
