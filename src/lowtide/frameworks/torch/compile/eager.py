"""The eager compiler: run planned graphs op by op, and free each tensor at its last use."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule

from lowtide.core.errors import InputError
from lowtide.frameworks.torch.internals.aot_autograd import is_graph_retained, static_inputs, take_overwritten_saves
from lowtide.frameworks.torch.internals.autocast import autocast_nesting
from lowtide.frameworks.torch.internals.nodes import nodes_in, storages_of, value_of
from lowtide.frameworks.torch.internals.runtime import box_inputs, marked_boxed
from lowtide.frameworks.torch.planning.options import Options
from lowtide.frameworks.torch.planning.planned_program import limit_to_bucket, plan_module
from lowtide.frameworks.torch.planning.programs import new_name, register
from lowtide.frameworks.torch.reading.effects import mutated_arguments
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.frameworks.torch.rewrites.table import INFERENCE

_UNDER_AUTOCAST = (
    "lowtide: backward() runs under autocast, so gradients may differ from eager PyTorch; call it outside of autocast"
)


def run_boxed(module: GraphModule, _example_inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
    """Return a graph as a function of one list, which it empties to free inputs early."""
    box_inputs(module.graph)
    module.recompile()
    return marked_boxed(module.forward)


def run_boxed_backward(module: GraphModule, example_inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
    """Return a boxed backward pass, which overwrites no saved tensors of a retained graph."""
    overwritten = _overwritten_inputs(module)
    take_overwritten_saves()  # ops overwrite fewer than Inductor might: only `overwritten`
    run = run_boxed(module, example_inputs)

    def run_keeping(inputs: list[Any]) -> Any:
        if autocast_nesting():
            warnings.warn(_UNDER_AUTOCAST, stacklevel=2)
        if is_graph_retained():
            for place in overwritten:
                inputs[place] = inputs[place].clone()
        return run(inputs)

    return marked_boxed(run_keeping)


def _overwritten_inputs(module: GraphModule) -> list[int]:
    written = storages_of(*(node for call in module.graph.nodes for node in nodes_in(mutated_arguments(call))))
    inputs = module.graph.find_nodes(op="placeholder")
    return [place for place, node in enumerate(inputs) if storages_of(node) & written]


class InferenceCompiler:
    """An `inference_compiler` for AOTAutograd. It leaves graphs that cannot be planned unchanged."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def __call__(self, module: GraphModule, example_inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        name = new_name(module.graph)
        try:
            module = self._plan(name, module)
        except InputError as error:
            warnings.warn(f"lowtide: {name} runs in PyTorch's order: {error}", stacklevel=2)
        return run_boxed(module, example_inputs)

    def _plan(self, name: str, module: GraphModule) -> GraphModule:
        module = run_rewrites(module, INFERENCE)
        if self.options.budget is not None:
            limit_to_bucket(map(value_of, module.graph.find_nodes(op="placeholder")))
        planned = plan_module(name, module, static_inputs(), self.options)
        register(planned)
        return planned.module
