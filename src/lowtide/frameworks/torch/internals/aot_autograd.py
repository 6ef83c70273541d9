"""AOTAutograd: joint graphs, PyTorch's partitioner, marks of checkpoints, and saved tensors."""
# pyright: reportAttributeAccessIssue=false, reportPrivateUsage=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import re
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._functorch import partitioners
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

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.joint_trace import made_once
from lowtide.frameworks.torch.internals.nodes import flat_leaves, nodes_in, outputs_of, storages_of, value_of
from lowtide.frameworks.torch.internals.tensors import storage_key

_MEMBER = re.compile(r"\._(?:modules|parameters|buffers)\['([^']+)'\]")
_MODULE = re.compile(r"^[LG]\['\w+'\](?:\.__self__)?\.")
_VARIABLE = re.compile(r"^[LG]\['(\w+)'\]")
_names_in_use: list[dict[int | str, str]] = []
"""Innermost graph last; by position or name in the module."""


def merge_common_subexpressions(module: GraphModule) -> None:
    module.graph = fx_graph_cse(module.graph)


def merges_common_subexpressions() -> bool:
    return bool(functorch_config.cse)


def partition_as_pytorch_does(
    joint: GraphModule, inputs: Sequence[Any], *, draws_are_saved: bool = False, **others: Any
) -> tuple[Any, Any]:
    """Return the forward and backward graph of PyTorch's own partitioner.

    PyTorch saves the random state for each checkpointed op that may draw, even attention without dropout. If all draws
    are saved, such ops are recomputed as plain ops.
    """
    marks = tuple((node.name, node.meta["recompute"]) for node in joint.graph.nodes if "recompute" in node.meta)
    forward, backward = made_once(
        ("partition", draws_are_saved, functorch_config.activation_memory_budget, marks),
        lambda: _partitioned(joint, inputs, draws_are_saved=draws_are_saved, **others),
    )
    return forward, backward


def _partitioned(joint: GraphModule, inputs: Sequence[Any], *, draws_are_saved: bool, **others: Any) -> tuple[Any, Any]:
    original = partitioners.functionalize_rng_ops
    if draws_are_saved:
        partitioners.functionalize_rng_ops = lambda _joint, forward, backward, _n_symbols: (forward, backward)
    try:
        return min_cut_rematerialization_partition(joint, inputs, **others)
    finally:
        partitioners.functionalize_rng_ops = original


def static_inputs() -> set[int]:
    """Return the positions of parameters and buffers."""
    metadata = _compilation_metadata()
    return set() if metadata is None else set(metadata.static_input_indices)


def _compilation_metadata() -> Any:
    context = TracingContext.try_get()
    return None if context is None else context.fw_metadata


@contextmanager
def naming_inputs(captured: GraphModule) -> Generator[None]:
    """Provide `input_name` with a TorchDynamo graph's names."""
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
    """Return the user's name of an input ("blocks.3.weight"), or "primals_3" if unknown."""
    return _described_name(node.meta.get("desc")) or node.name


def _described_name(description: Any) -> str | None:
    names = _names_in_use[-1] if _names_in_use else {}
    if isinstance(description, PlainAOTInput):
        return names.get(description.idx)
    if isinstance(description, ParamAOTInput | BufferAOTInput):
        return names.get(description.target, description.target)
    if isinstance(description, ViewBaseAOTInput | SyntheticBaseAOTInput):
        base = _described_name(description.base_of)
        return None if base is None else f"base of {base}"
    if isinstance(description, SubclassGetAttrAOTInput):
        base = _described_name(description.base)
        return None if base is None else f"{base}.{description.attr}"
    return None


def _user_name(source: str) -> str:
    path = _MEMBER.sub(r".\1", source)
    return _VARIABLE.sub(r"\1", source) if path == source else _MODULE.sub("", path)


def output_descriptions(module: GraphModule) -> list[Any]:
    (output,) = module.graph.find_nodes(op="output")
    return flat_leaves(output.meta.get("desc", [None] * len(outputs_of(module))))


def inputs_overwritten_later(joint: GraphModule, n_forward_outputs: int) -> list[Node]:
    later = [_overwritten_input(output) for output in output_descriptions(joint)[:n_forward_outputs]]
    return [node for node in joint.graph.find_nodes(op="placeholder") if node.meta.get("desc", later) in later]


def _overwritten_input(output: Any) -> Any:
    if isinstance(output, SubclassGetAttrAOTOutput):
        subclass = _overwritten_input(output.base)
        return None if subclass is None else SubclassGetAttrAOTInput(subclass, output.attr)
    return output.mutated_input if isinstance(output, InputMutationAOTOutput) else None


def set_output(graph: Graph, values: Sequence[Any], described: Sequence[Any]) -> None:
    output = graph.output(tuple(values))
    output.meta["desc"] = list(described)
    output.meta["output_stack_traces"] = [
        value.meta.get("stack_trace") if isinstance(value, Node) else None for value in values
    ]
    graph.lint()


def saved_description(place: int, node: Node) -> Any:
    return (SavedForBackwardsNoVcCheckAOTOutput if is_unchecked(node) else SavedForBackwardsAOTOutput)(place)


def is_unchecked(node: Node) -> bool:
    """Return whether autograd does not check a saved tensor for mutation."""
    return bool(node.meta.get("saved_tensor_with_no_vc_check", False))


def is_opaque_object(node: Node) -> bool:
    return isinstance(value_of(node), FakeScriptObject)


def must_save(node: Node) -> bool:
    return node.meta.get("recompute") is CheckpointPolicy.MUST_SAVE


def mark_must_save(node: Node) -> None:
    node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def must_recompute(node: Node) -> bool:
    return node.meta.get("recompute") in (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


def checkpoint_region(node: Node) -> int:
    return int(node.meta.get("ac_graph_id", 0))


def is_graph_retained() -> bool:
    return torch._C._autograd._get_current_graph_task_keep_graph()


def take_overwritten_saves() -> list[int]:
    """Return and clear the list of inputs that the compiled backward pass may overwrite.

    AOTAutograd would refuse to run it on a retained graph. The caller must copy these inputs instead.
    """
    places = getattr(_compilation_metadata(), "bw_donated_idxs", None) or []
    taken = list(places)
    places.clear()  # shared with the metadata read at run time
    return taken


def give_saved_away(forward: GraphModule, backward: GraphModule) -> None:
    """Let the second of two passes overwrite values saved only for it.

    The first pass returns one result, then saved values.
    """
    metadata = _compilation_metadata()
    if metadata is None:
        return
    result, *saved = outputs_of(forward)
    kept = storages_of(*forward.graph.find_nodes(op="placeholder"), result, *nodes_in(outputs_of(backward)))
    counts = Counter(storage for node in saved for storage in storages_of(node))
    metadata.bw_donated_idxs = [
        place
        for place, node in enumerate(saved)
        if storages_of(node).isdisjoint(kept) and all(counts[storage] == 1 for storage in storages_of(node))
    ]


def patched_autograd(changes: dict[str, Any]) -> AbstractContextManager[None]:
    return functorch_config.patch(changes)


def backward_of(results: Any) -> Any | None:
    nodes = (tensor.grad_fn for tensor in pytree.tensors_in(results))
    return next((node for node in nodes if node is not None and _is_compiled(node)), None)


def saved_by(node: Any) -> list[torch.Tensor]:
    """Return a compiled node's saved tensors, without unpack hooks: a checkpoint would recompute its region."""
    unchecked = getattr(node, "_tensors_no_vc_check", None) or []
    return pytree.tensors_in([*_saved_by_eager(node), *unchecked])


def saved_outside(inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Return the tensors, except leaves, saved by eager nodes before the inputs."""
    waiting = [each.grad_fn for each in inputs if isinstance(each, torch.Tensor)]
    saved: list[torch.Tensor] = []
    leaves: set[int] = set()
    seen: set[Any] = set()
    while waiting:
        node: Any = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [before for before, _ in node.next_functions]
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            leaves.add(storage_key(leaf))
        elif not _is_compiled(node):
            saved += _saved_by_eager(node)
    return [each for each in saved if storage_key(each) not in leaves]


def _is_compiled(node: Any) -> bool:
    return type(node).__name__ == "CompiledFunctionBackward"


def _saved_by_eager(node: Any) -> list[torch.Tensor]:
    found: list[Any] = []
    for name in dir(node):
        if name.startswith("_raw_saved_"):
            with suppress(RuntimeError):  # its backward pass is over
                saved = getattr(node, name)
                found += [each.data for each in (saved if isinstance(saved, (tuple, list)) else [saved])]
    return pytree.tensors_in(found)
