"""TorchDynamo: what hands its graphs to AOTAutograd."""
# pyright: reportUnknownMemberType=false

from torch._dynamo.backends.common import aot_autograd
from torch.fx import Graph, GraphModule, Node

__all__ = ["aot_autograd", "copied"]


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
