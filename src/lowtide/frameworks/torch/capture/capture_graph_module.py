"""Capturing a traced `GraphModule` or an `ExportedProgram`: programs that are graphs already."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.capture.call_inputs import CallInputs
from lowtide.frameworks.torch.capture.capture_function import capture_function
from lowtide.frameworks.torch.capture.sample_inputs import sample_inputs
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.nodes import make_values_fake
from lowtide.frameworks.torch.reading.captured import Binding, Captured
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.frameworks.torch.rewrites.table import GIVEN


def capture_exported(program: ExportedProgram) -> Captured:
    """Capture an exported program as aten ops on its `sample_inputs`; its mutations stay mutations."""
    args, kwargs = sample_inputs(program)
    return capture_function(program.module(), args, kwargs, backward=False)


def capture_graph_module(module: GraphModule) -> Captured:
    """Capture a graph of aten ops whose nodes carry fake or real tensors in `meta["val"]`, as it stands.

    Raises UnsupportedError where a node is no aten op or an input carries no metadata.
    """
    placeholders = module.graph.find_nodes(op="placeholder")
    values = [node.meta.get("val") for node in placeholders]
    for node in module.graph.nodes:
        if node.op in ("call_module", "call_method"):
            raise UnsupportedError(
                f"node '{node.name}' is a {node.op}; pass (module, example inputs) so that it is captured as aten ops"
            )
        if node.op == "placeholder" and "val" not in node.meta:
            raise UnsupportedError(
                f"input '{node.name}' carries no tensor metadata; pass (module, example inputs) so that it is captured"
            )
    owned = GraphModule(module, copy.deepcopy(module.graph))
    make_values_fake(owned.graph)
    (output,) = module.graph.find_nodes(op="output")
    _, spec = pytree.tree_flatten(output.args[0])
    return Captured(
        name=type(module).__name__,
        graph_module=run_rewrites(owned, GIVEN),
        inputs=tuple((node.name, Lifetime.INPUT) for node in placeholders),
        binding=GraphModuleBinding(module, CallInputs.of(tuple(values), {}), spec),
        with_backward=False,
        example_args=tuple(values),
    )


@dataclass(frozen=True, eq=False)
class GraphModuleBinding(Binding):
    """Feeds a traced module, one argument per placeholder."""

    module: GraphModule
    call: CallInputs
    spec: pytree.TreeSpec

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        if kwargs:
            raise UsageError("a traced GraphModule takes positional arguments only")
        self.call.bind(args, {})
        return list(args)

    def finish(self, outputs: list[Any], sources: list[torch.Tensor]) -> Any:
        return pytree.tree_unflatten(outputs, self.spec)

    def run_original(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        with torch.no_grad():
            return self.module(*args, **kwargs)

    def persistent(self) -> list[torch.Tensor]:
        return []
