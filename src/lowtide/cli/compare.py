"""`lowtide compare`: the peak of every order, with the lower bound."""

import click

from lowtide.api.opening import open_model
from lowtide.cli import options
from lowtide.cli.output import print_json, print_page
from lowtide.cli.progress import Progress
from lowtide.core.effort import EffortName
from lowtide.reporting.comparison import compare_orders


@click.command("compare")
@options.model
@options.dims
@options.trust
@options.in_place
@options.effort
@options.json
def command(model: str, dims: dict[str, int], trust: bool, in_place: bool, effort: EffortName, as_json: bool) -> None:
    """Show the peak of MODEL under every order, and the lower bound of all orders.

    A JAX function is also compiled, to show the order and addresses that XLA chose.
    """
    with Progress() as progress:
        progress(f"reading {model}")
        program = open_model(model, dims, trust=trust)
        comparison = compare_orders(
            program.graph, program.reserved(), in_place=in_place, effort=effort, progress=progress
        )
        progress(f"compiling {model}")
        compiled = program.compiled()
        compiled_comparison = None
        if compiled is not None:
            made = open_model(compiled)
            compiled_comparison = compare_orders(
                made.graph, made.reserved(), in_place=in_place, effort=effort, progress=progress
            )
    if as_json:
        print_json("compare", comparison.with_compiled(compiled_comparison))
    else:
        print_page(comparison.to_text())
        if compiled_comparison is not None:
            print_page(
                f"\nAfter compilation, in the compiler's order (given) and others:\n{compiled_comparison.to_text()}"
            )
