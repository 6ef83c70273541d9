"""What the nodes of an FX graph stand for, and how a node's fake tensors are computed anew."""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportAttributeAccessIssue=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportPrivateImportUsage=false
# pyright: reportUnknownLambdaType=false

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import find_symbol_binding_fx_nodes, free_symbols

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.fake_tensors import fake_mode_of, faked, is_fake, new_fake_mode
from lowtide.frameworks.torch.internals.symbolic_scalars import SYMBOLIC
from lowtide.frameworks.torch.internals.tensors import storage_key


def map_nodes(arguments: Any, function: Callable[[Node], Any]) -> Any:
    """Return nested arguments with every node replaced by what a function gives for it."""
    return torch.fx.node.map_arg(arguments, function)


def value_of(node: Node) -> Any:
    """Return the fake or real tensors a node stands for, None where it carries none."""
    return node.meta.get("val")


def storages_of(*nodes: Node) -> set[int]:
    """Return the keys of the storages of the strided tensors that nodes stand for."""
    leaves = pytree.tree_leaves([value_of(node) for node in nodes])
    return {storage_key(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided}


def outputs_of(module: GraphModule) -> list[Any]:
    """Return the flat outputs of a graph, nodes or constants."""
    (output,) = module.graph.find_nodes(op="output")
    return flat_leaves(output.args[0])


def flat_leaves(values: Any) -> list[Any]:
    """Return the leaves of nested values; None is one."""
    return pytree.tree_leaves(values, is_leaf=lambda leaf: leaf is None)


def compute_fake(node: Node, given: Callable[[Node], Any] = value_of, beside: torch.Tensor | None = None) -> Any:
    """Return what a call gives for the fake tensors that its arguments stand for; it adds no guards on their sizes.

    A call that takes no fake tensor gives those of the mode that is being compiled in, else of the one of `beside`.
    """
    args, kwargs = map_nodes((node.args, dict(node.kwargs)), given)
    taken = first_fake([args, kwargs])
    mode = fake_mode_of([] if beside is None else [beside]) if taken is None else taken.fake_mode
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda tensor: faked(mode, tensor), (args, kwargs))
    quiet = mode.shape_env.suppress_guards() if mode.shape_env else nullcontext()
    with torch.no_grad(), mode, quiet:
        return node.target(*args, **kwargs)  # pyright: ignore[reportCallIssue]


def first_fake(values: Any) -> Any:
    """Return one fake tensor among nested values, None where there is none."""
    return next((leaf for leaf in pytree.tree_leaves(values) if is_fake(leaf)), None)


def let_values_be_fake(graph: Graph) -> None:
    """Let all nodes stand for fake tensors, which share storages as the real ones among them did."""
    values = [value_of(node) for node in graph.nodes]
    fake = first_fake(values)
    mode = new_fake_mode() if fake is None else fake.fake_mode
    for node, value in zip(graph.nodes, values, strict=True):
        if value is not None:
            node.meta["val"] = pytree.tree_map_only(torch.Tensor, lambda tensor: faked(mode, tensor), value)


def is_symbol(node: Node) -> bool:
    """Tell whether a node stands for a symbolic scalar."""
    return isinstance(value_of(node), SYMBOLIC)


def symbol_bindings(graph: Graph) -> dict[Any, Node]:
    """Return, per symbol of the shapes in a graph, the node that gives its value."""
    return find_symbol_binding_fx_nodes(graph)


def symbols_in(node: Node) -> list[Any]:
    """Return the symbols in a node's shape, by name."""
    return sorted(free_symbols(value_of(node)), key=str)
