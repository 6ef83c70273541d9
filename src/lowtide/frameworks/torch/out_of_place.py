"""Operations that overwrite an intermediate, as operations that may: what was overwritten could not be made again.

`relu_` on the result of a normalization becomes `relu`, whose result may take over that storage as an in-place pair of
the plan, but need not.
"""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from lowtide.analysis import simulate
from lowtide.frameworks.torch.effects import is_random, mutated_arguments
from lowtide.frameworks.torch.lowering import lower
from lowtide.frameworks.torch.read import graph_of
from lowtide.frameworks.torch.torch_internals import (
    another_like,
    argument_types,
    is_dense,
    map_nodes,
    op_name,
    overload_name,
    overload_of,
    storage_key,
    value_of,
)
from lowtide.graph import Lifetime
from lowtide.plan import Plan


def write_out_of_place(module: GraphModule, inputs: Sequence[tuple[str, Lifetime]], last: Node) -> GraphModule:
    """Return the program with the overwriting operations up to a node made optional, bit for bit the same.

    Where that would raise the peak of the program as it stands, it is returned as it is.
    """
    graph = Graph()
    copies: dict[Node, Node] = {}
    result = graph.graph_copy(module.graph, copies)
    graph.output(result)
    if not _rewrite(graph, copies[last]):
        return module
    changed = GraphModule(module, graph)
    before, after = _peaks(module, inputs), _peaks(changed, inputs)
    return changed if all(after[space] <= peak for space, peak in before.items()) else module


def _peaks(module: GraphModule, inputs: Sequence[tuple[str, Lifetime]]) -> Mapping[str, int]:
    graph = graph_of("step", module, lower(module, inputs))
    return simulate(graph, Plan.baseline(graph)).peak_bytes


def _rewrite(graph: Graph, last: Node) -> bool:
    """Rewrite what can be rewritten; returns whether there was anything."""
    holders: dict[int, list[Node]] = {}
    place: dict[Node, int] = {}
    changed = False
    for node in list(graph.nodes):
        place[node] = len(place)
        for key in _storages(node):
            holders.setdefault(key, []).append(node)
        if node is last:
            return changed
        plain = _plain_form(node)
        overwritten: Any = node.args[0] if node.args else None
        if plain is None or not _is_alone(overwritten, node, holders):
            continue
        with graph.inserting_before(node):
            made = graph.call_function(plain, node.args, dict(node.kwargs))
        made.meta = dict(node.meta)
        place[made] = place[node]
        (key,) = _storages(node)
        holders[key] = [made]
        _move(overwritten)
        later = [user for user in overwritten.users if place.get(user, len(place)) > place[node]]
        for user in later:
            user.replace_input_with(overwritten, made)
        node.replace_all_uses_with(made)
        graph.erase_node(node)
        changed = True
    return changed


def _storages(node: Node) -> list[int]:
    return [storage_key(leaf) for leaf in pytree.tree_leaves(value_of(node)) if isinstance(leaf, torch.Tensor)]


def _plain_form(node: Node) -> Any:
    """Return the operator that computes the same into a new tensor of the same form, None where there is none."""
    target, value = overload_of(node.target), value_of(node)
    if target is None or not isinstance(value, torch.Tensor) or not is_dense(value) or is_random(node):
        return None
    name = op_name(target)
    if not name.endswith("_") or mutated_arguments(node) != [node.args[0]]:
        return None
    packet = getattr(getattr(torch.ops, target.namespace), name[:-1], None)
    plain = getattr(packet, overload_name(target), None)
    if plain is None or argument_types(plain) != argument_types(target) or torch.Tag.pointwise not in plain.tags:
        return None
    args, kwargs = map_nodes((node.args, dict(node.kwargs)), value_of)
    made = plain(*args, **kwargs)
    same = (made.dtype, made.shape, made.stride()) == (value.dtype, value.shape, value.stride())
    return plain if same else None


def _is_alone(overwritten: Any, node: Node, holders: dict[int, list[Node]]) -> bool:
    """Tell whether a node's storage was allocated for it alone and nothing else looks at it."""
    if not isinstance(overwritten, Node) or overwritten.op != "call_function":
        return False
    allowed = [overwritten, node]
    if overwritten.target is operator.getitem:
        allowed.append(overwritten.args[0])  # pyright: ignore[reportArgumentType]
    (key,) = _storages(overwritten)
    return all(holder in allowed for holder in holders[key])


def _move(node: Node) -> None:
    """Let a node's value lie in a storage of its own."""
    value = value_of(node)
    node.meta["val"] = moved = another_like(value)
    if node.target is operator.getitem:
        source: Any = node.args[0]
        index: Any = node.args[1]
        values = list(value_of(source))
        values[index] = moved
        source.meta = {**source.meta, "val": tuple(values)}
