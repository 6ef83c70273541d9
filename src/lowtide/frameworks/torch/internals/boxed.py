"""The boxed calling convention: a function takes one list and empties it, so that nothing else holds its arguments."""
# pyright: reportPrivateUsage=false, reportFunctionMemberAccess=false

from collections.abc import Callable
from typing import Any

from torch.fx import Graph
from torch.fx.graph import _BoxedCodeGen


def take_one_list(graph: Graph) -> None:
    """Let the code of a graph take its inputs as one list, which it empties."""
    graph.set_codegen(_BoxedCodeGen())


def marked_boxed(run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Return a function of one list, marked so that PyTorch's runtime calls it with the list itself."""

    def call(inputs: list[Any]) -> Any:
        return run(inputs)

    call._boxed_call = True
    return call
