"""AOTAutograd: joint graphs, their inputs and outputs, PyTorch's partitioner, and the marks of checkpoints.

AOTAutograd numbers its inputs ("primals_3") and describes each by its position in the graph that TorchDynamo captured.
TorchDynamo records where each came from ("L['self']._modules['blocks']._modules['3']._parameters['weight']"). From
both, `input_name` finds the name that users know.
"""
# pyright: reportAttributeAccessIssue=false, reportPrivateUsage=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import re
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.descriptors import (
    BufferAOTInput,
    InputMutationAOTOutput,
    ParamAOTInput,
    PlainAOTInput,
    SavedForBackwardsAOTOutput,
    SavedForBackwardsNoVcCheckAOTOutput,
    SubclassGetAttrAOTInput,
    SubclassGetAttrAOTOutput,
    SyntheticBaseAOTInput,
    ViewBaseAOTInput,
)
from torch._functorch.compile_utils import fx_graph_cse
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch._library.fake_class_registry import FakeScriptObject
from torch.fx import Graph, GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from lowtide.frameworks.torch.internals.nodes import flat_leaves, outputs_of, value_of

_MEMBER = re.compile(r"\._(?:modules|parameters|buffers)\['([^']+)'\]")
_MODULE = re.compile(r"^[LG]\['\w+'\](?:\.__self__)?\.")
"""The start of a module's path: the variable that holds the outermost module, or its method."""
_VARIABLE = re.compile(r"^[LG]\['(\w+)'\]")
_names_in_use: list[dict[int | str, str]] = []
"""Input names of the graphs being compiled, innermost last. Keys are positions, or names within the module."""


def merge_common_subexpressions(module: GraphModule) -> None:
    """Merge nodes that compute the same value, as PyTorch's partitioner does first."""
    module.graph = fx_graph_cse(module.graph)


def merges_common_subexpressions() -> bool:
    """Return whether PyTorch's partitioner is configured to merge common subexpressions."""
    return bool(functorch_config.cse)


def partition_as_pytorch_does(joint: GraphModule, inputs: Sequence[Any], **others: Any) -> tuple[Any, Any]:
    """Return the forward and backward graphs that PyTorch's own partitioner makes of a joint graph."""
    return min_cut_rematerialization_partition(joint, inputs, **others)


def static_inputs() -> set[int]:
    """Return the positions of parameters and buffers among the inputs of the graph being compiled."""
    context = TracingContext.try_get()
    metadata: Any = None if context is None else context.fw_metadata
    return set() if metadata is None else set(metadata.static_input_indices)


@contextmanager
def naming_inputs(captured: GraphModule) -> Generator[None]:
    """Provide `input_name` with the input names of a TorchDynamo graph that is compiled in this context."""
    names: dict[int | str, str] = {}
    for place, node in enumerate(captured.graph.find_nodes(op="placeholder")):
        source = getattr(node, "_dynamo_source", None)
        if source is not None:
            names[place] = _user_name(source.name)
    for name, source in vars(captured).get("_param_name_to_source", {}).items():
        names[name] = _user_name(source.name)
    _names_in_use.append(names)
    try:
        yield
    finally:
        _names_in_use.pop()


def input_name(node: Node) -> str:
    """Return the user's name of an input of an AOTAutograd graph, or the node's name if that is unknown."""
    return _described_name(node.meta.get("desc")) or node.name


def _described_name(description: Any) -> str | None:
    if isinstance(description, PlainAOTInput):
        return _names_in_use[-1].get(description.idx) if _names_in_use else None
    if isinstance(description, ParamAOTInput | BufferAOTInput):
        target = description.target
        return _names_in_use[-1].get(target, target) if _names_in_use else target
    if isinstance(description, ViewBaseAOTInput | SyntheticBaseAOTInput):
        base = _described_name(description.base_of)
        return None if base is None else f"base of {base}"
    if isinstance(description, SubclassGetAttrAOTInput):
        base = _described_name(description.base)
        return None if base is None else f"{base}.{description.attr}"
    return None


def _user_name(source: str) -> str:
    """Return "blocks.3.weight" for a member of a module, "batch['ids']" for any other input."""
    path = _MEMBER.sub(r".\1", source)
    return _VARIABLE.sub(r"\1", source) if path == source else _MODULE.sub("", path)


def output_descriptions(module: GraphModule) -> list[Any]:
    """Return AOTAutograd's description of every output."""
    (output,) = module.graph.find_nodes(op="output")
    return flat_leaves(output.meta.get("desc", [None] * len(outputs_of(module))))


def inputs_overwritten_later(joint: GraphModule, n_forward_outputs: int) -> list[Node]:
    """Return the inputs that the runtime overwrites after the forward pass, with contents that the pass returns."""
    described = output_descriptions(joint)[:n_forward_outputs]
    later = [_overwritten_input(output) for output in described]
    return [node for node in joint.graph.find_nodes(op="placeholder") if node.meta.get("desc", later) in later]


def _overwritten_input(output: Any) -> Any:
    """Return the description of the input that receives an output; for a subclass, of the tensor inside it."""
    if isinstance(output, SubclassGetAttrAOTOutput):
        subclass = _overwritten_input(output.base)
        return None if subclass is None else SubclassGetAttrAOTInput(subclass, output.attr)
    return output.mutated_input if isinstance(output, InputMutationAOTOutput) else None


def set_output(graph: Graph, values: Sequence[Any], described: Sequence[Any]) -> None:
    """Add the output node of a graph, with the metadata that AOTAutograd expects."""
    output = graph.output(tuple(values))
    output.meta["desc"] = list(described)
    output.meta["output_stack_traces"] = [
        value.meta.get("stack_trace") if isinstance(value, Node) else None for value in values
    ]
    graph.lint()


def saved_description(place: int, node: Node) -> Any:
    """Return AOTAutograd's description of a value saved for backward."""
    return (SavedForBackwardsNoVcCheckAOTOutput if is_unchecked(node) else SavedForBackwardsAOTOutput)(place)


def is_unchecked(node: Node) -> bool:
    """Return whether autograd skips its check that a saved tensor was not overwritten."""
    return bool(node.meta.get("saved_tensor_with_no_vc_check", False))


def is_opaque_object(node: Node) -> bool:
    """Return whether the value of a node is a script object and not a tensor."""
    return isinstance(value_of(node), FakeScriptObject)


def must_save(node: Node) -> bool:
    """Return whether the user's checkpoint policy requires to save a value."""
    return node.meta.get("recompute") is CheckpointPolicy.MUST_SAVE


def mark_must_save(node: Node) -> None:
    """Make PyTorch's partitioner save a value if the backward pass needs it."""
    node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def must_recompute(node: Node) -> bool:
    """Return whether the user checkpoints a value, so that the backward pass recomputes it."""
    return node.meta.get("recompute") in (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


def checkpoint_region(node: Node) -> int:
    """Return the number, in program order, of the checkpointed region that computes a value."""
    return int(node.meta.get("ac_graph_id", 0))


def is_graph_retained() -> bool:
    """Return whether the running backward pass may run once more."""
    return torch._C._autograd._get_current_graph_task_keep_graph()


def take_overwritten_saves() -> list[int]:
    """Return the positions of inputs that the backward pass just compiled may overwrite, and clear AOTAutograd's list.

    With a filled list, AOTAutograd refuses to run the pass if its graph is retained. The caller must copy these inputs
    in that case.
    """
    context = TracingContext.try_get()
    metadata: Any = None if context is None else context.fw_metadata
    places = getattr(metadata, "bw_donated_idxs", None) or []
    taken = list(places)
    places.clear()  # the metadata read at run time shares this list
    return taken


def patched_autograd(changes: dict[str, Any]) -> AbstractContextManager[None]:
    """Return a context with a changed configuration of AOTAutograd."""
    return functorch_config.patch(changes)
