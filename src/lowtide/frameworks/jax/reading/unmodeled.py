"""What a graph of XLA's kernels leaves out, in sentences."""

from collections.abc import Iterator
from typing import Any

from lowtide.frameworks.jax.flat.program import FlatProgram, Value
from lowtide.frameworks.jax.reading.primitives import LIBRARIES, PRODUCTS, REDUCTIONS


def unmodeled(program: FlatProgram) -> Iterator[str]:
    """Iterate what of this program's memory and time the graph does not hold."""
    kinds = {equation.kind for equation in program.equations}
    if any(equation.kind in PRODUCTS and _is_batched(equation.origin) for equation in program.equations):
        yield "copies that XLA makes of operands of batched products to bring their dimensions into order"
    if _reductions_read_broadcasts(program):
        yield "broadcasts that XLA stores where it gives the reduction that reads them to its kernel library"
    if kinds & LIBRARIES:
        yield f"workspaces of kernels from libraries: {', '.join(sorted(kinds & LIBRARIES))}"
    if "while" in kinds:
        yield "how often while loops turn: their cost is that of one turn"


def _is_batched(eqn: Any) -> bool:
    return eqn.primitive.name == "dot_general" and bool(eqn.params["dimension_numbers"][1][0])


def _reductions_read_broadcasts(program: FlatProgram) -> bool:
    """Return whether a reduction reads a product with what a smaller value is broadcast to, as a softmax's gradient."""
    broadcast: set[Value] = set()
    products: set[Value] = set()
    for equation in program.equations:
        if equation.kind == "broadcast_in_dim" and any(program.types[value].shape for value in equation.reads):
            broadcast.update(equation.outputs)
        elif equation.kind in ("mul", "div") and not (broadcast | products).isdisjoint(equation.reads):
            products.update(equation.outputs)
        elif equation.kind in REDUCTIONS and not products.isdisjoint(equation.reads):
            return True
    return False
