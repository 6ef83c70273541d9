"""The eager compiler: planned graphs are run as they are, op by op, freeing every tensor at its last use."""

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule
from torch.fx.graph import _BoxedCodeGen  # pyright: ignore[reportPrivateUsage]


def run_boxed(module: GraphModule, _example_inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
    """Return a graph as a function of one list, which it empties, so that nothing else keeps its inputs alive."""
    module.graph.set_codegen(_BoxedCodeGen())
    module.recompile()

    def run(inputs: list[Any]) -> Any:
        return module.forward(inputs)

    run._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return run
