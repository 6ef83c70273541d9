"""Values that Inductor must store where the plan computes them, rather than compute within whatever uses them."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import getitem

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.operators import define_operator, is_element_wise, is_view, store_in_inductor
from lowtide.frameworks.torch.internals.tensors import storage_bytes, storage_key
from lowtide.frameworks.torch.rewrites.kernel_places import kernel_places
from lowtide.frameworks.torch.rewrites.mask_bytes import as_bytes, from_bytes, is_mask_for_kernels
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, call_like, put_behind

_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)
_LEAST_SAVING = 1 / 8
"""The share of a value's bytes that storing it must save; a value less its mean is not worth a pass over memory."""


def _stored_copy(value: Tensor) -> Tensor:
    return value.clone()


STORED = define_operator("stored(Tensor value) -> Tensor", _stored_copy)
"""Its argument, in memory from here on. It copies nothing; Inductor's patterns do not see through it, fusion does."""


@dataclass(frozen=True)
class StoreEarlyValues(Rewrite[Node]):
    """Mark, in a planned graph, what must be stored so that memory follows the order of the plan.

    Inductor computes an element-wise value within the kernels that use it, so what it is made of stays alive until
    then. If that is more than the value itself by an eighth, and something else runs meanwhile, the value is stored, a
    mask as bytes. So is a matrix product that is added to something later: Inductor would run it with the sum. What
    lies in the caller's memory, such as an updated parameter, is there already, and what is written to it later must go
    there.
    """

    name = "store-early-values"
    source = "Inductor inlines element-wise values into the kernels that use them, unless they are realized."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the values to store, last ones first."""
        graph = module.graph
        found: list[Node] = []
        callers = {storage_key(value) for node in graph.find_nodes(op="placeholder") for value in _tensors(node)}
        places = kernel_places(graph, element_wise=True)
        ends = dict[Node, int]()
        """The last kernel that computes with an element-wise value or a view."""
        last_use = dict[int, int]()
        """The last kernel that computes with a storage, among the nodes looked at."""
        for node in reversed(list(graph.nodes)):
            if node.users and node.op == "call_function":
                end = max(ends.get(user, places[user]) for user in node.users)
                waits = end > places[node] + 1
                maker = _maker(node)
                if is_view(node.target):
                    ends[node] = end
                elif is_element_wise(maker.target):
                    kept = sum(bytes_ for key, bytes_ in _inputs(maker).items() if last_use.get(key, -1) < end)
                    own = {storage_key(value): storage_bytes(value) for value in _tensors(node)}
                    is_worth_it = own and kept > (1 + _LEAST_SAVING) * sum(own.values())
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
        """Put a mark behind each; it is the value itself, in the same storage, or a mask's bytes."""
        store_in_inductor(STORED)
        for node in sites:
            put_behind(node, node.next, _as_bytes if is_mask_for_kernels(node) else _as_it_is)
        return module


def _as_it_is(node: Node) -> Node:
    marked = node.graph.call_function(STORED, (node,))
    marked.meta = dict(node.meta)
    return marked


def _as_bytes(node: Node) -> Node:
    return from_bytes(call_like(node, node.graph, STORED, as_bytes(node)))


def _maker(node: Node) -> Node:
    """Return the node that computes a value, which may be one of several: a pooled image, and where it came from."""
    return node.all_input_nodes[0] if node.target is getitem else node


def _inputs(node: Node) -> dict[int, int]:
    """Return the bytes of every storage that a node reads and that is not the caller's, by key."""
    values = [value for part in node.all_input_nodes if not _is_callers(part) for value in _tensors(part)]
    return {storage_key(value): storage_bytes(value) for value in values}


def _tensors(node: Node) -> list[Tensor]:
    value = value_of(node)
    return [value] if isinstance(value, Tensor) else []


def _is_callers(node: Node) -> bool:
    while is_view(node.target) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node.op == "placeholder"
