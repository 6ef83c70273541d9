"""`lowtide compare`: the peak of every order, with the lower bound."""

import click

from lowtide.api.opening import open_model
from lowtide.cli import options
from lowtide.cli.output import print_page, show
from lowtide.cli.progress import Progress
from lowtide.core.effort import EffortName
from lowtide.frameworks.model import Model
from lowtide.reporting.comparison import Comparison, compare_orders


@click.command("compare")
@options.analysis
def command(model: str, dims: dict[str, int], trust: bool, in_place: bool, effort: EffortName, as_json: bool) -> None:
    """Show the peak of MODEL under every order, and the lower bound of all orders.

    A JAX function is also compiled, to show the order and addresses that XLA chose.
    """
    with Progress() as progress:

        def compared(program: Model) -> Comparison:
            return compare_orders(
                program.graph, program.reserved(), in_place=in_place, effort=effort, progress=progress
            )

        progress(f"reading {model}")
        program = open_model(model, dims, trust=trust)
        comparison = compared(program)
        progress(f"compiling {model}")
        compiled = program.compiled()
        other = None if compiled is None else compared(open_model(compiled))
    show("compare", as_json, lambda: comparison.with_compiled(other), comparison.to_text)
    if other is not None and not as_json:
        print_page(f"\nAfter compilation, in the compiler's order (given) and others:\n{other.to_text()}")
