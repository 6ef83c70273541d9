"""In-place ops as out-of-place ops, since an overwritten value cannot be recomputed."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Lifetime
from lowtide.engine.plan import Plan
from lowtide.frameworks.torch.internals.nodes import graph_module, map_arguments, storages_of, value_of
from lowtide.frameworks.torch.internals.operators import argument_types, op_name, overload_name, overload_of
from lowtide.frameworks.torch.internals.tensors import is_dense
from lowtide.frameworks.torch.reading.effects import is_random, mutated_arguments
from lowtide.frameworks.torch.reading.lowering import lower
from lowtide.frameworks.torch.reading.read import graph_of
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, call_like
from lowtide.frameworks.torch.rewrites.run import run_rewrites


@dataclass(frozen=True)
class WriteOutOfPlace(Rewrite[tuple[Node, Any]]):
    """Replace in-place ops on intermediates, if no other value shares the storage."""

    name = "write-out-of-place"
    source = "ATen's operators with a trailing underscore compute the same as those without."
    last: str
    """Name of the node at which to stop."""

    def sites(self, module: GraphModule) -> Sequence[tuple[Node, Any]]:
        found: list[tuple[Node, Any]] = []
        holders: dict[int, list[Node]] = {}
        overwritten_by: dict[Node, Node] = {}
        for node in module.graph.nodes:
            for key in storages_of(node):
                holders.setdefault(key, []).append(node)
            if node.name == self.last:
                break
            plain = _plain_form(node)
            overwritten: Any = node.args[0] if node.args else None
            while overwritten in overwritten_by:
                overwritten = overwritten_by[overwritten]
            if plain is None or not _is_alone(overwritten, node, holders):
                continue
            (key,) = storages_of(node)
            holders[key] = [node]
            overwritten_by[overwritten] = node
            found.append((node, plain))
        return found

    def apply(self, module: GraphModule, sites: Sequence[tuple[Node, Any]]) -> GraphModule:
        graph = Graph()
        copies: dict[Node, Node] = {}
        graph.output(graph.graph_copy(module.graph, copies))
        place = {node: index for index, node in enumerate(graph.nodes)}
        for original, plain in sites:
            node = copies[original]
            overwritten: Any = node.args[0]
            with graph.inserting_before(node):
                made = call_like(node, graph, plain, *node.args, **node.kwargs)
            place[made] = place[node]
            for user in list(overwritten.users):
                if place[user] > place[node]:
                    user.replace_input_with(overwritten, made)
            node.replace_all_uses_with(made)
            graph.erase_node(node)
        return graph_module(module, graph)


def write_out_of_place(module: GraphModule, inputs: Sequence[tuple[str, Lifetime]], last: Node) -> GraphModule:
    """Return the program without in-place ops up to a node, or unchanged if the baseline peak would rise."""
    changed = run_rewrites(module, [WriteOutOfPlace(last.name)])
    if changed is module:
        return module
    before, after = _peaks(module, inputs), _peaks(changed, inputs)
    return changed if all(after[space] <= peak for space, peak in before.items()) else module


def _peaks(module: GraphModule, inputs: Sequence[tuple[str, Lifetime]]) -> Mapping[str, int]:
    graph = graph_of("step", module, lower(module, inputs), in_place=False)
    return simulate(graph, Plan.baseline(graph)).peak_bytes


def _plain_form(node: Node) -> Any:
    target, value = overload_of(node.target), value_of(node)
    if target is None or not isinstance(value, torch.Tensor) or not is_dense(value) or is_random(node):
        return None
    if value.is_complex() or target is torch.ops.aten.mul_.Scalar:  # rounds otherwise in place
        return None
    name = op_name(target)
    if not name.endswith("_") or mutated_arguments(node) != [node.args[0]]:
        return None
    packet = getattr(getattr(torch.ops, target.namespace), name[:-1], None)
    plain = getattr(packet, overload_name(target), None)
    if plain is None or argument_types(plain) != argument_types(target) or torch.Tag.pointwise not in plain.tags:
        return None
    args, kwargs = map_arguments(node, value_of)
    made = plain(*args, **kwargs)
    same = (made.dtype, made.shape, made.stride()) == (value.dtype, value.shape, value.stride())
    return plain if same else None


def _is_alone(overwritten: Any, node: Node, holders: Mapping[int, list[Node]]) -> bool:
    if not isinstance(overwritten, Node) or overwritten.op != "call_function":
        return False
    allowed: list[Any] = [overwritten, node]
    if overwritten.target is operator.getitem:
        allowed.append(overwritten.args[0])
    (key,) = storages_of(overwritten)
    return all(holder in allowed for holder in holders[key])
