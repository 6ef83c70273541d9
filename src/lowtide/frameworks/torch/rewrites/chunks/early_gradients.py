"""Gradients of a loss computed with the loss, so that one pass over a product's rows is enough."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import graph_module, value_of
from lowtide.frameworks.torch.internals.operators import op_name
from lowtide.frameworks.torch.internals.pytree import tensors_in
from lowtide.frameworks.torch.reading.effects import is_random, keeps_order, overwritten_storages
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK, needed_by
from lowtide.frameworks.torch.rewrites.chunks.product_region import PRODUCTS, TwoPasses
from lowtide.frameworks.torch.rewrites.chunks.region_search import find_product_regions, found_or_none
from lowtide.frameworks.torch.rewrites.rewrite import Preserves, Rewrite

aten = torch.ops.aten
_VIEWS = ("view", "reshape", "_unsafe_view", "expand", "permute", "t", "transpose", "slice", "select", "squeeze")
_OF_ONE = (*_VIEWS, "unsqueeze", "alias", "detach", "clone", "neg", "sum", "_to_copy", "convert_element_type")
"""Ops linear in their first operand."""
_FILLED = {"full": 1, "scalar_tensor": 0, "full_like": 1}
"""Ops that fill tensors with a number, and its position."""


@dataclass(frozen=True)
class EarlyGradients(Rewrite[Node]):
    """Compute gradients of large products in the forward pass, for an incoming gradient of one.

    Applies to nodes that would read rows of a product a second time, if linear in the gradient of one loss. The
    backward pass multiplies their results by it. Gradients in float16 do not move: they may need the loss scale.
    """

    name = "early-gradients"
    source = "A linear function of a number is its value at one, times that number."
    preserves = Preserves(up_to="the rounding of one product per element of a gradient")
    any_order: bool = False

    def sites(self, module: GraphModule) -> Sequence[Node]:
        turns = module.graph.find_nodes(op="call_function", target=TURN_BACK)
        if len(turns) != 1:
            return []
        found = found_or_none(partial(find_product_regions, module.graph, any_order=self.any_order))
        passes = [refusal.two_passes for refusal in found[1] if refusal.two_passes is not None] if found else []
        late = _nodes_after(turns[0])
        early = {node for each in passes for node in _early_of(each, late, turns[0])}
        return [node for node in late if node in early]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        early, made = set(sites), dict[Node, Node]()
        graph, results = Graph(), dict[Node, Node]()
        for node in module.graph.nodes:
            if node.target is TURN_BACK:
                scaled = _append_early(graph, sites, list(node.users), made)
                made[node] = graph.node_copy(node, made.__getitem__)
                for tangent in node.users:
                    results[tangent] = made[tangent] = graph.node_copy(tangent, made.__getitem__)
                for source, tangent in scaled.items():
                    made[source] = graph.call_function(aten.mul.Tensor, (made[source], results[tangent]))
            elif node not in early and node not in results:
                made[node] = graph.node_copy(node, made.__getitem__)
        return graph_module(module, graph)


def _append_early(
    graph: Graph, early: Sequence[Node], tangents: Sequence[Node], made: dict[Node, Node]
) -> dict[Node, Node]:
    """Append nodes for an incoming gradient of one. Return the nodes to multiply by the real gradient."""
    inside, ones = set(early), dict[Node, Node]()
    for tangent in tangents:
        if any(user in inside for user in tangent.users):
            value = value_of(tangent)
            ones[tangent] = graph.call_function(aten.full.default, ([], 1.0))
            ones[tangent].kwargs = {"dtype": value.dtype, "device": value.device}
    copies = {**made, **ones}
    for node in early:
        copies[node] = made[node] = graph.node_copy(node, copies.__getitem__)
    linear = _dependent_on(ones, early)
    return {
        node: next(iter(ones)) for node in early if node in linear and any(user not in inside for user in node.users)
    }


def _nodes_after(turn: Node) -> dict[Node, None]:
    nodes = list(turn.graph.nodes)
    late = nodes[nodes.index(turn) + 1 :]
    return dict.fromkeys(node for node in late if node not in turn.users and node.op == "call_function")


def _early_of(passes: TwoPasses, late: Collection[Node], turn: Node) -> list[Node]:
    needed = needed_by([node for node in passes.second if node in late])
    early = [node for node in late if node in needed]
    others = [node for node in early if node.target in PRODUCTS and node not in passes.second]
    return early if not others and _can_be_early(early, turn) else []


def _dependent_on(sources: Collection[Node], nodes: Sequence[Node]) -> set[Node]:
    found = set(sources)
    for node in nodes:
        if any(source in found for source in node.all_input_nodes):
            found.add(node)
    return found


def _can_be_early(early: Sequence[Node], turn: Node) -> bool:
    read = [tangent for tangent in turn.users if any(user in early for user in tangent.users)]
    if any(is_random(node) or keeps_order(node) or overwritten_storages(node) for node in early):
        return False
    if not read:
        return True
    if len(read) > 1 or not _is_number(value_of(read[0])):
        return False
    linear = _dependent_on(read, early)
    return all(_is_linear(node, linear) and not _is_half(node) for node in early if node in linear)


def _is_number(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0 and value.is_floating_point()


def _is_half(node: Node) -> bool:
    return any(tensor.dtype == torch.float16 for tensor in tensors_in(value_of(node)))


def _is_linear(node: Node, linear: Collection[Node]) -> bool:
    name, args = op_name(node.target), node.args
    read = [source in linear for source in args if isinstance(source, Node)]
    if any(source in linear for source in node.kwargs.values() if isinstance(source, Node)):
        return False
    if name in _OF_ONE or name.endswith(("_backward", "_backward_data")):
        return read[0] and not any(read[1:])
    if name in ("mul", "mm", "bmm"):
        return sum(read) == 1
    if name == "div":
        return args[0] in linear and args[1] not in linear
    if name in ("add", "sub"):
        return sum(read) == len(args)
    if name == "where":
        return args[0] not in linear and all(each in linear or _is_zero(each) for each in args[1:])
    return False


def _is_zero(operand: Any) -> bool:
    if not isinstance(operand, Node):
        return isinstance(operand, int | float) and operand == 0
    name = op_name(operand.target) if operand.op == "call_function" else ""
    return name in _FILLED and _is_zero(operand.args[_FILLED[name]])
