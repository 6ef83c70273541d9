"""Rewrites that split ops: lists into tensors, and ops that run once into parts that can be recomputed."""

import operator
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.operators import op_name
from lowtide.frameworks.torch.reading.effects import arguments_by_name
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, call_like

aten = torch.ops.aten
FUSED_OPTIMIZERS = ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")
_STATISTICS = ("running_mean", "running_var")
_FIRST_NEW = 3


@dataclass(frozen=True)
class SplitForeach(Rewrite[Node]):
    """Split every `_foreach_*` and fused optimizer op into one op for each tensor."""

    name = "split-foreach"
    source = "ATen's foreach kernels treat the tensors of a list independently."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        return [node for node in module.graph.nodes if _is_over_list(node) and len(_tensors(node)) > 1]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        for node in sites:
            _split_list(module.graph, node, len(_tensors(node)))
        return module


def _is_over_list(node: Node) -> bool:
    name = op_name(node.target)
    return name.startswith("_foreach_") or name in FUSED_OPTIMIZERS


def _tensors(node: Node) -> Sequence[Any]:
    tensors: Any = node.args[0] if node.args else ()
    return tensors


def _split_list(graph: Graph, node: Node, length: int) -> None:
    target: Any = node.target
    readers: dict[int, list[Node]] = {}
    for user in list(node.users):
        index: Any = user.args[1]
        readers.setdefault(int(index), []).append(user)
    values = value_of(node)
    for index in range(length):
        with graph.inserting_before(node):
            args = tuple(_one_of(argument, index, length) for argument in node.args)
            kwargs = {name: _one_of(argument, index, length) for name, argument in node.kwargs.items()}
            single = graph.call_function(target, args, kwargs)
            if values is not None:
                single.meta["val"] = [values[index]]  # the same tensor, from another op
            for reader in readers.get(index, ()):
                element = graph.call_function(operator.getitem, (single, 0))
                element.meta = dict(reader.meta)
                reader.replace_all_uses_with(element)
                graph.erase_node(reader)
    graph.erase_node(node)


def _one_of(argument: Any, index: int, length: int) -> Any:
    return [argument[index]] if _has_length(argument, length) else argument


def _has_length(argument: object, length: int) -> bool:
    return isinstance(argument, Sized) and len(argument) == length


@dataclass(frozen=True)
class SplitBatchNorm(Rewrite[Node]):
    """Replace every `native_batch_norm` in training mode by its functional form on copies of the statistics.

    The backward op gets the copies too: this keeps them alive while the forward op may be recomputed.
    """

    name = "split-batch-norm"
    source = "PyTorch's functionalization uses the same op, `_native_batch_norm_legit_functional`."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        nodes = module.graph.find_nodes(op="call_function", target=aten.native_batch_norm.default)
        return [node for node in nodes if _updates(node)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        for node in sites:
            _split_batch_norm(module.graph, node)
        return module


def _updates(node: Node) -> bool:
    given = arguments_by_name(node)
    return bool(given["training"]) and all(isinstance(given[name], Node) for name in _STATISTICS)


def _split_batch_norm(graph: Graph, node: Node) -> None:
    given = arguments_by_name(node)
    statistics: list[Node] = [given[name] for name in _STATISTICS]
    with graph.inserting_before(node):
        copies = [call_like(node, graph, aten.clone.default, source) for source in statistics]
        given.update(zip(_STATISTICS, copies, strict=True))
        functional = aten._native_batch_norm_legit_functional.default
        normalized = call_like(node, graph, functional, *given.values())
        places = range(_FIRST_NEW, _FIRST_NEW + len(statistics))
        updated = [call_like(node, graph, operator.getitem, normalized, place) for place in places]
        for source, new in zip(statistics, updated, strict=True):
            call_like(node, graph, aten.copy_.default, source, new)
    node.replace_all_uses_with(normalized)
    graph.erase_node(node)
    for saved in list(normalized.users):
        for user in list(saved.users):
            if user.target is aten.native_batch_norm_backward.default and arguments_by_name(user)["train"]:
                for source, copied in zip(statistics, copies, strict=True):
                    user.replace_input_with(source, copied)


@dataclass(frozen=True)
class SplitDropout(Rewrite[Node]):
    """Replace every `native_dropout` on the CPU by the draw and products of its kernel."""

    name = "split-dropout"
    source = "ATen's CPU kernel of `native_dropout`, op by op."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        nodes = module.graph.find_nodes(op="call_function", target=aten.native_dropout.default)
        return [node for node in nodes if _draws_on_cpu(node)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        for node in sites:
            _split_dropout(module.graph, node)
        return module


def _draws_on_cpu(node: Node) -> bool:
    given = arguments_by_name(node)
    on_cpu = value_of(given["input"]).device.type == "cpu"
    return on_cpu and given["train"] is not False and 0 < given["p"] < 1


def _split_dropout(graph: Graph, node: Node) -> None:
    given = arguments_by_name(node)
    rate, source = given["p"], given["input"]
    result, drawn = value_of(node)
    scale = torch.tensor(1 / (1 - rate), dtype=result.dtype).item()  # the kernel rounds it to its input's type
    with graph.inserting_before(node):
        empty = call_like(node, graph, aten.empty_like.default, source, dtype=drawn.dtype, device=drawn.device)
        mask = call_like(node, graph, aten.bernoulli_.float, empty, 1 - rate)
        kept = call_like(node, graph, aten.mul.Tensor, source, mask)
        scaled = call_like(node, graph, aten.mul.Tensor, kept, scale)
    for user in list(node.users):
        if user.target is operator.getitem:
            user.replace_all_uses_with(mask if user.args[1] == 1 else scaled)
            graph.erase_node(user)
    graph.erase_node(node)
