"""Values of FX nodes, and their fake computation."""
# pyright: reportAttributeAccessIssue=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportPrivateUsage=false

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.experimental.symbolic_shapes import find_symbol_binding_fx_nodes, free_symbols

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.fake_strides import contiguous_as_in_run, grouped_products_of_any_dtype
from lowtide.frameworks.torch.internals.fake_tensors import fake_mode_of, faked, is_fake, new_fake_mode
from lowtide.frameworks.torch.internals.symbolic_scalars import SYMBOLIC
from lowtide.frameworks.torch.internals.tensors import storage_key


def graph_module(root: Any, graph: Graph) -> GraphModule:
    """Return a module of a graph. Its code is made when first read or called."""
    return _LazyGraphModule(root, graph)


def copied_graph(module: GraphModule) -> GraphModule:
    graph, made = Graph(), dict[Node, Node]()
    for node in module.graph.nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
    copy = graph_module(module, graph)
    copy.meta = dict(module.meta)
    return copy


def map_nodes(arguments: Any, function: Callable[[Node], Any]) -> Any:
    return torch.fx.node.map_arg(arguments, function)


def map_arguments(node: Node, function: Callable[[Node], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return map_nodes((node.args, dict(node.kwargs)), function)


def nodes_in(arguments: Any) -> list[Node]:
    """Return the distinct nodes."""
    found: dict[Node, None] = {}
    map_nodes(arguments, found.setdefault)
    return list(found)


def value_of(node: Node) -> Any:
    return node.meta.get("val")


def storages_of(*nodes: Node) -> set[int]:
    tensors = pytree.tensors_in([value_of(node) for node in nodes])
    return {storage_key(tensor) for tensor in tensors if tensor.layout == torch.strided}


def outputs_of(module: GraphModule) -> list[Any]:
    (output,) = module.graph.find_nodes(op="output")
    return flat_leaves(output.args[0])


def flat_leaves(values: Any) -> list[Any]:
    """Return the leaves of nested values, including None."""
    return pytree.tree_leaves(values, is_leaf=lambda leaf: leaf is None)


def compute_fake(node: Node, given: Callable[[Node], Any] = value_of, like: torch.Tensor | None = None) -> Any:
    """Run a call on fake values without adding guards, in the mode of an argument, the compilation or `like`."""
    args, kwargs = map_arguments(node, given)
    fake = first_fake([args, kwargs])
    mode = fake_mode_of([] if like is None else [like]) if fake is None else fake.fake_mode
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda tensor: faked(mode, tensor), (args, kwargs))
    quiet = mode.shape_env.suppress_guards() if mode.shape_env else nullcontext()
    with torch.no_grad(), mode, quiet, grouped_products_of_any_dtype():
        result = node.target(*args, **kwargs)  # pyright: ignore[reportCallIssue]
        return contiguous_as_in_run(node.target, result)


def first_fake(values: Any) -> Any:
    return next((leaf for leaf in pytree.tree_leaves(values) if is_fake(leaf)), None)


def make_values_fake(graph: Graph) -> None:
    """Replace nodes' tensors by fake ones with equally shared storages."""
    values = [value_of(node) for node in graph.nodes]
    fake = first_fake(values)
    mode = new_fake_mode() if fake is None else fake.fake_mode
    for node, value in zip(graph.nodes, values, strict=True):
        if value is not None:
            node.meta["val"] = pytree.tree_map_only(torch.Tensor, lambda tensor: faked(mode, tensor), value)


def is_symbol(node: Node) -> bool:
    return isinstance(value_of(node), SYMBOLIC)


def symbol_bindings(graph: Graph) -> dict[Any, Node]:
    return find_symbol_binding_fx_nodes(graph)


def symbols_in(node: Node) -> list[Any]:
    return sorted(free_symbols(value_of(node)), key=str)
