"""The private corners of AOTAutograd and Inductor that the backend stands on: a new PyTorch is ported here."""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportAttributeAccessIssue=false

import operator
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.descriptors import (
    InputMutationAOTOutput,
    SavedForBackwardsAOTOutput,
    SavedForBackwardsNoVcCheckAOTOutput,
    SubclassGetAttrAOTInput,
    SubclassGetAttrAOTOutput,
)
from torch._functorch.compile_utils import fx_graph_cse
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext, detect_fake_mode
from torch._library.fake_class_registry import FakeScriptObject
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import find_symbol_binding_fx_nodes, free_symbols
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import CheckpointPolicy

from lowtide.frameworks.torch.symbolic_scalars import SYMBOLIC
from lowtide.frameworks.torch.torch_internals import is_view, map_nodes, storages_of, value_of


def merge_common_subexpressions(module: GraphModule) -> None:
    """Do what PyTorch's partitioner does first, unless its configuration says no."""
    if functorch_config.cse:
        module.graph = fx_graph_cse(module.graph)
    let_views_follow(module.graph)


def let_views_follow(graph: Graph) -> None:
    """Let views of what was merged away or replaced, and the fake tensors they carry, look at what stands there now."""
    for node in graph.nodes:
        looks = node.target is operator.getitem or is_view(node.target)
        known = all(value_of(source) is not None for source in node.all_input_nodes)
        if looks and known and storages_of(node) - storages_of(*node.all_input_nodes):
            node.meta["val"] = compute_fake(node)


def partition_as_pytorch_does(joint: GraphModule, inputs: Sequence[Any], **others: Any) -> tuple[Any, Any]:
    """Return what PyTorch's own partitioner makes of a joint graph."""
    return min_cut_rematerialization_partition(joint, inputs, **others)


def static_inputs() -> set[int]:
    """Return the places of parameters and buffers among the inputs of the graph that is being compiled."""
    context = TracingContext.try_get()
    metadata: Any = None if context is None else context.fw_metadata
    return set() if metadata is None else set(metadata.static_input_indices)


def outputs_of(module: GraphModule) -> list[Any]:
    """Return the flat outputs of a graph, nodes or constants."""
    (output,) = module.graph.find_nodes(op="output")
    return _leaves(output.args[0])


def output_descriptions(module: GraphModule) -> list[Any]:
    """Return AOTAutograd's description of every output."""
    (output,) = module.graph.find_nodes(op="output")
    return _leaves(output.meta.get("desc", [None] * len(outputs_of(module))))


def inputs_overwritten_later(joint: GraphModule, n_forward_outputs: int) -> list[Node]:
    """Return the inputs that the runtime overwrites when the forward pass has returned their new contents."""
    described = output_descriptions(joint)[:n_forward_outputs]
    later = [_overwritten_by(output) for output in described]
    return [node for node in joint.graph.find_nodes(op="placeholder") if node.meta.get("desc", later) in later]


def set_output(graph: Graph, values: Sequence[Any], described: Sequence[Any]) -> None:
    """End a graph as AOTAutograd expects it."""
    output = graph.output(tuple(values))
    output.meta["desc"] = list(described)
    output.meta["output_stack_traces"] = [
        value.meta.get("stack_trace") if isinstance(value, Node) else None for value in values
    ]
    graph.lint()


def saved_description(place: int, node: Node) -> Any:
    """Return AOTAutograd's description of a saved value."""
    return (SavedForBackwardsNoVcCheckAOTOutput if is_unchecked(node) else SavedForBackwardsAOTOutput)(place)


def is_unchecked(node: Node) -> bool:
    """Tell whether autograd does not look whether a saved tensor was overwritten."""
    return bool(node.meta.get("saved_tensor_with_no_vc_check", False))


def is_opaque_object(node: Node) -> bool:
    """Tell whether a node stands for an object that is no tensor."""
    return isinstance(value_of(node), FakeScriptObject)


def is_symbol(node: Node) -> bool:
    """Tell whether a node stands for a symbolic scalar."""
    return isinstance(value_of(node), SYMBOLIC)


def must_save(node: Node) -> bool:
    """Tell whether the user's checkpoint policy says that a value is saved."""
    return node.meta.get("recompute") is CheckpointPolicy.MUST_SAVE


def mark_must_save(node: Node) -> None:
    """Let PyTorch's partitioner save a value wherever the backward pass needs it."""
    node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def compute_fake(node: Node) -> Any:
    """Return what a call gives for the fake tensors of its arguments, in storages of its own."""
    args, kwargs = map_nodes((node.args, dict(node.kwargs)), value_of)
    mode: Any = detect_fake_mode((args, kwargs))
    with mode, mode.shape_env.suppress_guards() if mode.shape_env else nullcontext():
        return node.target(*args, **kwargs)  # pyright: ignore[reportCallIssue]


def must_recompute(node: Node) -> bool:
    """Tell whether the user checkpoints a value, so that it is computed again in the backward pass."""
    return node.meta.get("recompute") in (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


def checkpoint_region(node: Node) -> int:
    """Return the number of the checkpointed region in which a value is computed, in program order."""
    return int(node.meta.get("ac_graph_id", 0))


def symbol_bindings(graph: Graph) -> dict[Any, Node]:
    """Return, per symbol of the shapes in a graph, the node that gives its value."""
    return find_symbol_binding_fx_nodes(graph)


def symbols_in(node: Node) -> list[Any]:
    """Return the symbols in a node's shape, by name."""
    return sorted(free_symbols(value_of(node)), key=str)


def is_graph_retained() -> bool:
    """Tell whether the backward pass that is running may run once more."""
    return torch._C._autograd._get_current_graph_task_keep_graph()


def overlap_passes() -> list[Any]:
    """Return the passes over kernels that the user has Inductor run last, for the overlap with communication."""
    from torch._inductor import config

    return list(config.reorder_for_compute_comm_overlap_passes) if config.reorder_for_compute_comm_overlap else []


def patched(config: Any, changes: dict[str, Any]) -> AbstractContextManager[None]:
    """Change a configuration module of PyTorch's for a while."""
    return config.patch(changes)


def compile_fx(module: GraphModule, inputs: Sequence[Any], changes: dict[str, Any]) -> Callable[..., Any]:
    """Compile a captured graph with Inductor under a changed configuration."""
    from torch._inductor.compile_fx import compile_fx as compile_graph

    return compile_graph(module, inputs, config_patches=changes)  # pyright: ignore[reportReturnType]


def end_cpu_functions_after(scheduler: Any, kernels: Collection[Any]) -> None:
    """Have Inductor's scheduler end the C++ function that it is writing after some kernels."""
    backend = scheduler.get_backend(torch.device("cpu"))
    backend.ready_to_flush = lambda: scheduler.current_node in kernels


def _overwritten_by(output: Any) -> Any:
    """Return the description of the input whose new contents an output is, of a tensor within a subclass as well."""
    if isinstance(output, SubclassGetAttrAOTOutput):
        whole = _overwritten_by(output.base)
        return None if whole is None else SubclassGetAttrAOTInput(whole, output.attr)
    return output.mutated_input if isinstance(output, InputMutationAOTOutput) else None


def _leaves(values: Any) -> list[Any]:
    return pytree.tree_leaves(values, is_leaf=lambda leaf: leaf is None)
