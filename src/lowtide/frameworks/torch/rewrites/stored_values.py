"""Rewrites that make Inductor store values where the plan computes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import getitem

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.operators import (
    copy_in_inductor,
    define_operator,
    is_element_wise,
    is_view,
    pass_in_inductor,
    store_in_inductor,
)
from lowtide.frameworks.torch.internals.tensors import storage_bytes, storage_key
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, call_like, replace_uses
from lowtide.frameworks.torch.rewrites.saved_values import as_bytes, from_bytes, is_mask_for_kernels

aten = torch.ops.aten
_PRODUCTS = (aten.mm.default, aten.bmm.default)
_MIN_SAVING = 1 / 8
"""Share of a value's bytes that storing it must save to be worth a pass over memory."""


def lay_out(value: Tensor, strides: Sequence[int]) -> Tensor:
    return value.new_empty_strided(value.shape, strides).copy_(value)


STORED = define_operator("stored(Tensor value) -> Tensor", torch.clone)
"""Stores its argument without a copy. Inductor can fuse it, but matches no patterns across it."""
COPIED = define_operator("copied(Tensor value) -> Tensor", torch.clone)
LAID_OUT = define_operator("laid_out(Tensor value, int[] strides) -> Tensor", lay_out)
"""Gives a value the strides that Inductor chose for it in another graph."""
AS_STORED = (STORED, COPIED, LAID_OUT)


@dataclass(frozen=True)
class StoreEarlyValues(Rewrite[Node]):
    """Mark the values of a planned graph that Inductor must store, so that memory follows the plan.

    Inductor computes element-wise values within the kernels that use them, so operands stay alive until then. A value
    is stored if its operands, and their sources, are larger by an eighth and another kernel runs before. Matrix
    products that are added to later values are stored, since Inductor would delay them. Masks are stored as bytes.
    """

    name = "store-early-values"
    source = "Inductor inlines element-wise values into the kernels that use them, unless they are realized."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        graph = module.graph
        found: list[Node] = []
        callers = {storage_key(value) for node in graph.find_nodes(op="placeholder") for value in _tensors(node)}
        places = _kernels_before(graph, element_wise=True)
        sources = _stored_sources(graph)
        ends = dict[Node, int]()
        last_use = dict[int, int]()  # by storage
        for node in reversed(list(graph.nodes)):
            if node.users and node.op == "call_function":
                end = max(ends.get(user, places[user]) for user in node.users)
                waits = end > places[node] + 1
                maker = node.all_input_nodes[0] if node.target is getitem else node
                if is_view(node.target):
                    ends[node] = end
                elif is_element_wise(maker.target):
                    kept = min(
                        sum(bytes_ for key, bytes_ in each.items() if last_use.get(key, -1) < end)
                        for each in (_inputs(maker), sources[maker])
                    )
                    own = {storage_key(value): storage_bytes(value) for value in _tensors(node)}
                    is_worth_it = own and kept > (1 + _MIN_SAVING) * sum(own.values())
                    if waits and is_worth_it and callers.isdisjoint(own):
                        found.append(node)
                    else:
                        ends[node] = end
                elif waits and node.target in _PRODUCTS:
                    found.append(node)
            for key in _inputs(node):
                last_use[key] = max(last_use.get(key, -1), ends.get(node, places[node]))
        return found

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        store_in_inductor(STORED)
        for node in sites:
            replace_uses(node, node.next, stored_as_bytes if is_mask_for_kernels(node) else stored)
        return module


def stored(node: Node) -> Node:
    marked = node.graph.call_function(STORED, (node,))
    marked.meta = dict(node.meta)
    return marked


def stored_as_bytes(mask: Node) -> Node:
    return from_bytes(call_like(mask, mask.graph, STORED, as_bytes(mask)))


def laid_out(node: Node, strides: Sequence[int]) -> Node:
    pass_in_inductor(LAID_OUT)
    return call_like(node, node.graph, LAID_OUT, node, list(strides))


def _inputs(node: Node) -> dict[int, int]:
    values = [value for source in node.all_input_nodes if not _is_callers(source) for value in _tensors(source)]
    return {storage_key(value): storage_bytes(value) for value in values}


def _stored_sources(graph: Graph) -> dict[Node, dict[int, int]]:
    """Return the bytes of each storage that Inductor reads to compute each element-wise node."""
    found: dict[Node, dict[int, int]] = {}
    for node in graph.nodes:
        maker = node.all_input_nodes[0] if node.target is getitem else node
        if node.op == "call_function" and (is_view(node.target) or is_element_wise(maker.target)):
            found[node] = _inputs(node)
            for source in node.all_input_nodes:
                if source in found:
                    for key in map(storage_key, _tensors(source)):
                        found[node].pop(key, None)
                    found[node] |= found[source]
    return found


def _tensors(node: Node) -> list[Tensor]:
    value = value_of(node)
    return [value] if isinstance(value, Tensor) else []


def _is_callers(node: Node) -> bool:
    while is_view(node.target) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node.op == "placeholder"


@dataclass(frozen=True)
class CopyIntoConcatenations(Rewrite[tuple[Node, Node]]):
    """Copy operands of concatenations that the plan computes before, or reads after.

    Inductor computes operands as views of the concatenation, which is then alive from the first operand to the last use
    of any.
    """

    name = "copy-into-concatenations"
    source = "Inductor's ConcatKernel, which makes its operands views of its result on the CPU."

    def sites(self, module: GraphModule) -> Sequence[tuple[Node, Node]]:
        places = _kernels_before(module.graph, element_wise=False)
        ends = _last_uses(module.graph, places)
        joined = module.graph.find_nodes(op="call_function", target=aten.cat.default)
        return [
            (join, operand)
            for join in joined
            for operand in dict.fromkeys(join.all_input_nodes)
            if _may_be_view(operand) and (places[operand] < places[join] or ends[operand] > ends[join])
        ]

    def apply(self, module: GraphModule, sites: Sequence[tuple[Node, Node]]) -> GraphModule:
        copy_in_inductor(COPIED)
        for join, operand in sites:
            with module.graph.inserting_before(join):
                join.replace_input_with(operand, call_like(join, module.graph, COPIED, operand))
        return module


def _may_be_view(operand: Node) -> bool:
    return operand.op == "call_function" and not is_view(operand.target) and isinstance(value_of(operand), Tensor)


def _last_uses(graph: Graph, places: dict[Node, int]) -> dict[Node, int]:
    ends = dict[Node, int]()
    for node in reversed(list(graph.nodes)):
        uses = (ends[user] if is_view(user.target) else places[user] for user in node.users)
        ends[node] = max(uses, default=places[node])
    return ends


def _kernels_before(graph: Graph, *, element_wise: bool) -> dict[Node, int]:
    """Return an upper bound on the kernels before each node.

    Kernels that Inductor may fuse count only with `element_wise`.
    """
    places, kernels = dict[Node, int](), 0
    for node in graph.nodes:
        places[node] = kernels
        is_kernel = node.op == "call_function" and not is_view(node.target)
        kernels += is_kernel and (element_wise or not is_element_wise(node.target))
    return places
