"""Autocast's cache of casts, which PyTorch's tracers switch off.

Eager PyTorch casts a float32 leaf once per outermost autocast region, and adds its gradients in lower precision.
"""
# pyright: reportPrivateUsage=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false

from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.dynamo import copied
from lowtide.frameworks.torch.internals.fake_tensors import forgetting_scalars, is_fake
from lowtide.frameworks.torch.internals.nodes import map_arguments
from lowtide.frameworks.torch.internals.runtime import DispatchMode, autocast_cache

_ENTER: Any = torch.amp.autocast_mode._enter_autocast
_EXIT: Any = torch.amp.autocast_mode._exit_autocast
_GRAD_MODE: Any = torch._C._set_grad_enabled
_CHECKPOINT: Any = torch.ops.higher_order.tag_activation_checkpoint
_Key = tuple[int, Node, torch.dtype]
"""Outermost autocast region, leaf, and new dtype."""


def autocast_nesting() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def with_shared_casts(module: GraphModule) -> GraphModule:
    """Return a TorchDynamo graph that shares casts of leaves like eager PyTorch."""
    module = copied(module)
    _share_casts(module)
    return module


def _share_casts(module: GraphModule) -> None:
    for (_, leaf, dtype), users in _uses(module).items():
        if len(users) == 1 and users[0].target is not _CHECKPOINT:
            continue
        with module.graph.inserting_before(users[0]):
            cast = module.graph.call_method("to", (leaf, dtype))
        cast.meta = {key: value for key, value in users[0].meta.items() if key != "example_value"}
        for user in users:
            user.replace_input_with(leaf, cast)
    module.recompile()


def _uses(module: GraphModule) -> Mapping[_Key, list[Node]]:
    uses: dict[_Key, list[Node]] = defaultdict(list)
    leaves = [node for node in module.graph.find_nodes(op="placeholder") if _is_cached(node)]
    calls = {user for leaf in leaves for user in leaf.users if _is_plain(user) or user.target is _CHECKPOINT}
    contexts: dict[Node, Any] = {}
    region = 0
    with _restored(contexts):
        for node in module.graph.nodes if leaves else ():
            if node.target is _ENTER:
                contexts[node] = _ENTER(*node.args)
            elif node.target is _EXIT:
                _EXIT(contexts.pop(node.args[0]))
                region += autocast_nesting() == 0
            elif node.target is _GRAD_MODE:
                torch.set_grad_enabled(node.args[0])
            elif node.target is _CHECKPOINT and not autocast_nesting():
                _share_casts(_value_of(module, node.args[0]))  # autocast begins and ends inside
            elif node in calls and torch.is_grad_enabled() and torch.is_autocast_cache_enabled() and autocast_nesting():
                for leaf, dtype in _casts_of(module, node, leaves):
                    uses[region, leaf, dtype].append(node)
    return uses


@contextmanager
def _restored(contexts: dict[Node, Any]) -> Generator[None]:
    with torch.enable_grad():
        try:
            yield
        finally:
            for context in reversed(contexts.values()):
                _EXIT(context)


def _is_cached(node: Node) -> bool:
    value: Any = node.meta.get("example_value")
    if not is_fake(value) or value._is_view():  # reading `is_leaf` of a view may raise
        return False
    return value.is_leaf and value.requires_grad and value.dtype is torch.float32


def _is_plain(call: Node) -> bool:
    return call.op.startswith("call") and not isinstance(call.target, HigherOrderOperator)


def _casts_of(module: GraphModule, call: Node, leaves: list[Node]) -> Iterator[tuple[Node, torch.dtype]]:
    values = {leaf: leaf.meta["example_value"] for leaf in leaves}
    seen = _CastsSeen({id(value): leaf for leaf, value in values.items()})
    args, kwargs = map_arguments(call, lambda node: _value_of(module, node))
    function: Any = call.target
    if function is _CHECKPOINT:
        (function, *args), kwargs = args, {}
    elif call.op == "call_method":
        function = getattr(args[0], str(call.target))
        args = args[1:]
    mode = values[leaves[0]].fake_mode
    with autocast_cache(False), forgetting_scalars(mode), seen:
        function(*args, **kwargs)
    for leaf, dtypes in seen.dtypes.items():
        dtype = torch.get_autocast_dtype(values[leaf].device.type)
        if dtypes == {dtype}:
            yield leaf, dtype


def _value_of(module: GraphModule, node: Node) -> Any:
    return getattr(module, str(node.target)) if node.op == "get_attr" else node.meta.get("example_value")


class _CastsSeen(DispatchMode):
    """Record the dtypes that each leaf is cast to, and None for other uses."""

    def __init__(self, leaves: Mapping[int, Node]) -> None:
        super().__init__()
        self._leaves = leaves
        self.dtypes: dict[Node, set[torch.dtype | None]] = defaultdict(set)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in pytree.tensors_in([args, kwargs]) if func.namespace != "prim" else ():
            if id(tensor) in self._leaves:
                dtype = (kwargs or {}).get("dtype") if func is torch.ops.aten._to_copy.default else None
                self.dtypes[self._leaves[id(tensor)]].add(dtype)
        return func(*args, **(kwargs or {}))
