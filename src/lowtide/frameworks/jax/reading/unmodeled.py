"""What a graph of XLA's kernels leaves out, in sentences."""

from collections.abc import Iterator
from typing import Any

from lowtide.frameworks.jax.flat.program import FlatProgram
from lowtide.frameworks.jax.reading.primitives import LIBRARIES, PRODUCTS


def unmodeled(program: FlatProgram) -> Iterator[str]:
    """Iterate what of this program's memory and time the graph does not hold."""
    kinds = {equation.kind for equation in program.equations}
    if any(equation.kind in PRODUCTS and _is_batched(equation.origin) for equation in program.equations):
        yield "copies that XLA makes of operands of batched products to bring their dimensions into order"
    if kinds & LIBRARIES:
        yield f"workspaces of kernels from libraries: {', '.join(sorted(kinds & LIBRARIES))}"
    if "while" in kinds:
        yield "how often while loops turn: their cost is that of one turn"


def _is_batched(eqn: Any) -> bool:
    return eqn.primitive.name == "dot_general" and bool(eqn.params["dimension_numbers"][1][0])
