"""Inference: a forward pass without gradients, run in the order of its plan."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule

from lowtide.core.errors import InputError
from lowtide.frameworks.torch.compile.buckets import keep_to_bucket
from lowtide.frameworks.torch.compile.eager import run_boxed
from lowtide.frameworks.torch.compile.names import new_name
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.compile.planned_program import plan_module
from lowtide.frameworks.torch.compile.programs import remember
from lowtide.frameworks.torch.internals.aot_autograd import static_inputs
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.frameworks.torch.rewrites.table import INFERENCE


class InferenceCompiler:
    """An `inference_compiler` for AOTAutograd."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def __call__(self, module: GraphModule, example_inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        """Return the graph as a boxed function in the order of its plan; as it is, where it cannot be planned."""
        name = new_name(module.graph)
        try:
            module = self._plan(name, module)
        except InputError as error:
            warnings.warn(f"lowtide: {name} runs as PyTorch ordered it: {error}", stacklevel=2)
        return run_boxed(module, example_inputs)

    def _plan(self, name: str, module: GraphModule) -> GraphModule:
        module = run_rewrites(module, INFERENCE)
        if self.options.budget is not None:
            keep_to_bucket(map(value_of, module.graph.find_nodes(op="placeholder")))
        planned = plan_module(name, module, static_inputs(), self.options)
        remember(planned)
        return planned.module
