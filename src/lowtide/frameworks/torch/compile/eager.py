"""The eager compiler: planned graphs are run as they are, op by op, freeing every tensor at its last use."""

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule

from lowtide.frameworks.torch.internals.aot_autograd import is_graph_retained
from lowtide.frameworks.torch.internals.nodes import storages_of
from lowtide.frameworks.torch.internals.runtime import box_inputs, marked_boxed
from lowtide.frameworks.torch.reading.effects import mutated_arguments
from lowtide.frameworks.torch.reading.lowering import nodes_in


def run_boxed(module: GraphModule, _example_inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
    """Return a graph as a function of one list, which it empties, so that nothing else keeps its inputs alive."""
    box_inputs(module.graph)
    module.recompile()
    return marked_boxed(module.forward)


def run_boxed_backward(module: GraphModule, example_inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
    """Return a backward pass as `run_boxed` does; where the caller retains the graph, nothing saved is overwritten."""
    overwritten = _overwritten_inputs(module)
    run = run_boxed(module, example_inputs)

    def run_keeping(inputs: list[Any]) -> Any:
        if is_graph_retained():
            for place in overwritten:
                inputs[place] = inputs[place].clone()
        return run(inputs)

    return marked_boxed(run_keeping) if overwritten else run


def _overwritten_inputs(module: GraphModule) -> list[int]:
    written = storages_of(*(node for call in module.graph.nodes for node in nodes_in(mutated_arguments(call))))
    inputs = module.graph.find_nodes(op="placeholder")
    return [place for place, node in enumerate(inputs) if storages_of(node) & written]
