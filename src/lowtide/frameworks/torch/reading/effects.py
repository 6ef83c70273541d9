"""Effects of aten ops: mutation, random numbers, order, communication."""

import math
import operator
from typing import Any

import torch
from torch.fx import Node

from lowtide.engine.graph import COPYING_KINDS, UPDATE_ON_HOST
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.nodes import nodes_in, storages_of
from lowtide.frameworks.torch.internals.operators import (
    higher_order_of,
    op_name,
    overload_of,
    returns_anything,
    schema_arguments,
)

aten = torch.ops.aten
Arguments = dict[str, Any]

_BATCH_NORMS = (aten.native_batch_norm, aten.cudnn_batch_norm, aten.miopen_batch_norm, aten._batch_norm_impl_index)
_HIDDEN_MUTATIONS: dict[Any, tuple[str, ...]] = {
    packet.default: ("running_mean", "running_var") for packet in _BATCH_NORMS
}
"""Mutated arguments that the schema does not declare."""

_COLLECTIVES = ("c10d", "_c10d_functional", "_dtensor")
_REPEATABLE = {
    *("all_gather_into_tensor", "all_gather_into_tensor_coalesced"),
    *("reduce_scatter_tensor", "reduce_scatter_tensor_coalesced"),
    *("all_reduce", "all_reduce_coalesced", "all_to_all_single", "broadcast", "shard_dim_alltoall"),
}
"""Collectives without mutation in which all ranks take part."""
RETURNS_WHEN_DONE = frozenset({"shard_dim_alltoall"})
"""Collectives that need no wait."""

OUTLINED = "run_outlined_"
RANDOM_STATE = "random_state"
_ORDERED_NAMESPACES = (*_COLLECTIVES, "lowtide")
_SCALAR_MODULES = (operator.__name__, "_operator", math.__name__)
CALLING = {"cond": "conditional", "while_loop": "while", "invoke_subgraph": "call"}


def arguments_by_name(node: Node) -> Arguments:
    names = [argument.name for argument in schema_arguments(node.target)]
    return dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def mutated_arguments(node: Node) -> list[Any]:
    """Return the tensors, or lists of tensors, that a node mutates."""
    overload = overload_of(node.target)
    return [] if overload is None else _mutated(overload, arguments_by_name(node))


def overwritten_tensors(overload: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    names = [argument.name for argument in schema_arguments(overload)]
    return pytree.tensors_in(_mutated(overload, dict(zip(names, args, strict=False)) | dict(kwargs)))


def _mutated(overload: Any, given: Arguments) -> list[Any]:
    written = [
        argument.name
        for argument in schema_arguments(overload)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    if overload in _HIDDEN_MUTATIONS and given.get("training", True):
        written.extend(_HIDDEN_MUTATIONS[overload])
    return [given[name] for name in written if given.get(name) is not None]


def overwritten_nodes(node: Node) -> list[Node]:
    return nodes_in(mutated_arguments(node))


def touched_storages(node: Node) -> set[int]:
    return storages_of(node, *node.all_input_nodes)


def overwritten_storages(node: Node) -> set[int]:
    return storages_of(*overwritten_nodes(node))


def is_random(node: Node) -> bool:
    """Return whether a node is random. Dropout with probability 0 and repeated draws are not."""
    overload = overload_of(node.target)
    if overload is None or torch.Tag.nondeterministic_seeded not in overload.tags:
        return False
    given = arguments_by_name(node)
    if given.get(RANDOM_STATE) is not None:
        return False
    rates = [argument.default_value for argument in schema_arguments(overload) if argument.name == "dropout_p"]
    return not (rates and given.get("dropout_p", rates[0]) == 0.0)


def keeps_order(node: Node) -> bool:
    overload = overload_of(node.target)
    if is_random(node) or is_opaque(node):
        return True
    if overload is None or op_name(overload).startswith(OUTLINED) or is_off_device(node):
        return False
    return overload.namespace in _ORDERED_NAMESPACES or not (returns_anything(overload) or mutated_arguments(node))


def is_off_device(node: Node) -> bool:
    """Return whether a node runs on the host, or copies to or from it."""
    return f"lowtide.{op_name(node.target)}" in COPYING_KINDS or runs_on_host(node)


def runs_on_host(node: Node) -> bool:
    return f"lowtide.{op_name(node.target)}" == UPDATE_ON_HOST


def is_collective(node: Node) -> bool:
    """Return whether a node starts or awaits communication."""
    overload = overload_of(node.target)
    return overload is not None and overload.namespace in _COLLECTIVES


def is_repeatable_collective(node: Node) -> bool:
    return is_collective(node) and op_name(node.target) in _REPEATABLE


def waits_for_collective(node: Node) -> bool:
    return is_collective(node) and op_name(node.target) == "wait_tensor"


def is_opaque(node: Node) -> bool:
    target = node.target
    if overload_of(target) is not None:
        return False
    higher_order = higher_order_of(target)
    if higher_order is not None:
        return higher_order.name() not in CALLING
    return getattr(target, "__module__", None) not in _SCALAR_MODULES and not is_symbolic_scalar(target)


def is_symbolic_scalar(target: Any) -> bool:
    name = getattr(target, "__name__", "")
    return getattr(target, "__module__", "").split(".")[0] == "torch" and name.lstrip("_").startswith("sym_")
