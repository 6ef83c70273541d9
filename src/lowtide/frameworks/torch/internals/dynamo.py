"""TorchDynamo: what hands its graphs to AOTAutograd."""
# pyright: reportUnknownMemberType=false

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import SymInt
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext, tracing
from torch.fx import Graph, GraphModule, Node

__all__ = ["CapturedNow", "aot_autograd", "captured_now", "copied"]


def copied(module: GraphModule) -> GraphModule:
    """Return a copy of a captured graph to compile: compilers own and change what they are given."""
    graph, made = Graph(), dict[Node, Node]()
    for node in module.graph.nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
        if hasattr(node, "_dynamo_source"):
            made[node]._dynamo_source = node._dynamo_source  # pyright: ignore[reportAttributeAccessIssue,reportPrivateUsage]
    copy = GraphModule(module, graph)
    copy.meta = dict(module.meta)
    names = vars(module).get("_param_name_to_source")
    if names is not None:
        copy._param_name_to_source = names  # pyright: ignore[reportPrivateUsage]
    return copy


@dataclass(frozen=True, slots=True, eq=False)
class CapturedNow:
    """A captured graph of static shapes that can be compiled once more after TorchDynamo went on."""

    module: GraphModule
    context: TracingContext

    @contextmanager
    def compiling(self) -> Generator[tuple[GraphModule, list[Any]]]:
        """Give a copy of the graph and stand-ins for its inputs, as when it was captured."""
        module = copied(self.module)
        with tracing(self.context):
            yield module, _stand_ins(module)


def captured_now(module: GraphModule) -> CapturedNow | None:
    """Keep a graph as it is captured; None where a size is dynamic, or nothing stands for an input."""
    context = TracingContext.try_get()
    inputs = _stand_ins(module)
    if context is None or any(each is None or isinstance(each, SymInt) for each in inputs):
        return None
    if any(isinstance(size, SymInt) for each in inputs for size in getattr(each, "shape", ())):
        return None
    return CapturedNow(copied(module), context)


def _stand_ins(module: GraphModule) -> list[Any]:
    return [node.meta.get("example_value") for node in module.graph.find_nodes(op="placeholder")]
