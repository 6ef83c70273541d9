"""What PyTorch's partitioner made of a joint graph, as one program again."""

from operator import attrgetter
from typing import Any

from torch.fx import Graph, GraphModule, Node

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.torch.internals.aot_autograd import set_output
from lowtide.frameworks.torch.internals.nodes import compute_fake, is_symbol, outputs_of, storages_of
from lowtide.frameworks.torch.rewrites.boundary import is_tangent, turn_back


def rejoin(forward: GraphModule, backward: GraphModule, n_forward_outputs: int) -> GraphModule:
    """Return forward pass, boundary and backward pass as one graph, in which what the backward runs again is plain ops.

    Saved values come back in AOTAutograd's order: the forward returns symbols last, the backward takes them first.
    PyTorch's partitioner gives a rerun the fake tensors of the first run. So it would count as a view of that, take no
    memory, keep what it is a view of, and read what nobody knows of. So every rerun gets storage of its own.
    """
    graph, made = Graph(), dict[Node, Node]()
    for node in forward.graph.nodes:
        if node.op != "output":
            made[node] = graph.node_copy(node, made.__getitem__)
    results = outputs_of(forward)
    saved = results[n_forward_outputs:]
    symbols = [node for node in saved if is_symbol(node)]
    inputs = backward.graph.find_nodes(op="placeholder")
    tangents = [node for node in inputs if is_tangent(node)]
    crossing = [*symbols, *(node for node in saved if node not in symbols)]
    given = [node for node in inputs if node not in tangents]
    if len(given) != len(crossing):
        raise UnsupportedError("its backward pass takes inputs of its own, such as random seeds or hooks")
    for node, source in zip(given, crossing, strict=True):
        made[node] = made[source]
    made.update(turn_back(graph, forward, n_forward_outputs, tangents, made))
    known = storages_of(*graph.nodes)
    for node in backward.graph.nodes:
        if node.op not in ("placeholder", "output"):
            made[node] = copied = graph.node_copy(node, made.__getitem__)
            if known & storages_of(copied) - storages_of(*copied.all_input_nodes) and node.op == "call_function":
                copied.meta["val"] = compute_fake(copied)  # it runs again, or looks at what does
            known |= storages_of(copied)
    values = [*results[:n_forward_outputs], *outputs_of(backward)]
    set_output(graph, [made[value] if isinstance(value, Node) else value for value in values], [None] * len(values))
    return GraphModule({**_attributes_of(forward), **_attributes_of(backward)}, graph)


def _attributes_of(module: GraphModule) -> dict[str, Any]:
    """Return what a graph takes from its module, by name; both passes take the same names from the joint module."""
    names = [str(node.target) for node in module.graph.find_nodes(op="get_attr")]
    return {name: attrgetter(name)(module) for name in names}
