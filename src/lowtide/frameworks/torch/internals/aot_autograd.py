"""AOTAutograd: joint graphs, what it says of their inputs and outputs, its partitioner, what checkpoints mark."""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportAttributeAccessIssue=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportPrivateImportUsage=false
# pyright: reportUnknownLambdaType=false

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._functorch import partitioners
from torch._functorch._aot_autograd.descriptors import (
    InputMutationAOTOutput,
    SavedForBackwardsAOTOutput,
    SavedForBackwardsNoVcCheckAOTOutput,
    SubclassGetAttrAOTInput,
    SubclassGetAttrAOTOutput,
)
from torch._functorch.compile_utils import fx_graph_cse
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch._library.fake_class_registry import FakeScriptObject
from torch.fx import Graph, GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from lowtide.frameworks.torch.internals.nodes import flat_leaves, outputs_of, value_of


def merge_common_subexpressions(module: GraphModule) -> None:
    """Let one node stand for all that compute the same, as PyTorch's partitioner does first."""
    module.graph = fx_graph_cse(module.graph)


def merges_common_subexpressions() -> bool:
    """Tell whether PyTorch's configuration says that its partitioner does that."""
    return bool(functorch_config.cse)


def partition_as_pytorch_does(
    joint: GraphModule, inputs: Sequence[Any], *, draws_are_saved: bool = False, **others: Any
) -> tuple[Any, Any]:
    """Return the forward and backward graph of PyTorch's own partitioner.

    PyTorch saves the random state for every checkpointed op that may draw, also for attention without dropout. If all
    draws are saved, the state is not needed, and such ops are recomputed as plain ops.
    """
    original = partitioners.functionalize_rng_ops
    if draws_are_saved:
        partitioners.functionalize_rng_ops = lambda _joint, forward, backward, _n_symbols: (forward, backward)
    try:
        return min_cut_rematerialization_partition(joint, inputs, **others)
    finally:
        partitioners.functionalize_rng_ops = original


def static_inputs() -> set[int]:
    """Return the places of parameters and buffers among the inputs of the graph that is being compiled."""
    context = TracingContext.try_get()
    metadata: Any = None if context is None else context.fw_metadata
    return set() if metadata is None else set(metadata.static_input_indices)


def output_descriptions(module: GraphModule) -> list[Any]:
    """Return AOTAutograd's description of every output."""
    (output,) = module.graph.find_nodes(op="output")
    return flat_leaves(output.meta.get("desc", [None] * len(outputs_of(module))))


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
    """Tell whether autograd skips its check that a saved tensor was not overwritten."""
    return bool(node.meta.get("saved_tensor_with_no_vc_check", False))


def is_opaque_object(node: Node) -> bool:
    """Tell whether a node stands for an object that is no tensor."""
    return isinstance(value_of(node), FakeScriptObject)


def must_save(node: Node) -> bool:
    """Tell whether the user's checkpoint policy says that a value is saved."""
    return node.meta.get("recompute") is CheckpointPolicy.MUST_SAVE


def mark_must_save(node: Node) -> None:
    """Let PyTorch's partitioner save a value wherever the backward pass needs it."""
    node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def must_recompute(node: Node) -> bool:
    """Tell whether the user checkpoints a value, so that it is computed again in the backward pass."""
    return node.meta.get("recompute") in (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


def checkpoint_region(node: Node) -> int:
    """Return the number of the checkpointed region in which a value is computed, in program order."""
    return int(node.meta.get("ac_graph_id", 0))


def is_graph_retained() -> bool:
    """Tell whether the backward pass that is running may run once more."""
    return torch._C._autograd._get_current_graph_task_keep_graph()


def take_overwritten_saves() -> list[int]:
    """Return the inputs of the backward pass just compiled that it may overwrite, and have AOTAutograd let it.

    AOTAutograd refuses to run such a pass where its graph is retained; whoever takes the places sees to that instead.
    """
    context = TracingContext.try_get()
    metadata: Any = None if context is None else context.fw_metadata
    places = getattr(metadata, "bw_donated_idxs", None) or []
    taken = list(places)
    places.clear()  # the metadata that is asked when the pass runs holds the same list
    return taken


def patched_autograd(changes: dict[str, Any]) -> AbstractContextManager[None]:
    """Change AOTAutograd's configuration for a while."""
    return functorch_config.patch(changes)


def _overwritten_by(output: Any) -> Any:
    """Return the description of the input whose new contents an output is, of a tensor within a subclass as well."""
    if isinstance(output, SubclassGetAttrAOTOutput):
        whole = _overwritten_by(output.base)
        return None if whole is None else SubclassGetAttrAOTInput(whole, output.attr)
    return output.mutated_input if isinstance(output, InputMutationAOTOutput) else None
