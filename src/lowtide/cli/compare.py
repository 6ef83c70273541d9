"""`lowtide compare`: every order side by side, with the bound."""

import click

from lowtide.api.opening import open_model
from lowtide.cli import options
from lowtide.cli.output import print_json, print_page
from lowtide.cli.progress import Progress
from lowtide.core.effort import EffortName
from lowtide.engine.schedule import Candidate, make_candidate, scheduler_names
from lowtide.frameworks.model import Model
from lowtide.reporting.comparison import Comparison


@click.command("compare")
@options.model
@options.dims
@options.trust
@options.in_place
@options.effort
@options.json
def command(model: str, dims: dict[str, int], trust: bool, in_place: bool, effort: EffortName, as_json: bool) -> None:
    """Show the peak of MODEL under every order, and what no order can beat.

    A JAX function is also compiled: the order and the addresses that XLA itself chose stand beside ours then.
    """
    with Progress() as progress:
        progress(f"reading {model}")
        program = open_model(model, dims, trust=trust)
        comparison = _comparison(program, in_place, effort, progress)
        progress(f"compiling {model}")
        compiled = program.compiled()
        inside = None if compiled is None else _comparison(open_model(compiled), in_place, effort, progress)
    if as_json:
        print_json("compare", comparison.with_compiled(inside))
    else:
        print_page(comparison.to_text())
        if inside is not None:
            print_page(f"\nas compiled, in the compiler's own order (given) and others:\n{inside.to_text()}")


def _comparison(program: Model, in_place: bool, effort: EffortName, progress: Progress) -> Comparison:
    graph = program.graph
    rows: list[Candidate] = []
    for name in scheduler_names():
        progress(f"ordering {graph.n_ops} ops ({name})")
        rows.append(make_candidate(name, graph, in_place=in_place, effort=effort))
        if rows[-1].interrupted:
            raise KeyboardInterrupt  # the search ends at Ctrl-C with what it has; a comparison has no use for that
    return Comparison.of(graph, rows, in_place=in_place, reserved=program.reserved())
