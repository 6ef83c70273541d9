"""The partitioner, which decides by a plan which values are saved and which are recomputed."""

import operator
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from lowtide.core.errors import InputError, UnsupportedError
from lowtide.frameworks.torch.compile.split import rejoin, split
from lowtide.frameworks.torch.compile.step_passes import add_rest, is_step
from lowtide.frameworks.torch.internals.aot_autograd import (
    mark_must_save,
    must_recompute,
    partition_as_pytorch_does,
    patched_autograd,
)
from lowtide.frameworks.torch.internals.hints import hinted_value_of
from lowtide.frameworks.torch.internals.nodes import copied_graph, outputs_of, value_of
from lowtide.frameworks.torch.internals.operators import higher_order_of
from lowtide.frameworks.torch.internals.tensors import hint
from lowtide.frameworks.torch.planning.agreement import partners
from lowtide.frameworks.torch.planning.options import Options
from lowtide.frameworks.torch.planning.plan_program import Share
from lowtide.frameworks.torch.planning.planned_program import (
    PlannedModule,
    limit_to_bucket,
    plan_module,
    unplanned_module,
)
from lowtide.frameworks.torch.planning.programs import new_name, register
from lowtide.frameworks.torch.reading.effects import is_random
from lowtide.frameworks.torch.rewrites.boundary import InsertBoundary, is_tangent
from lowtide.frameworks.torch.rewrites.clean_up import DropDeadCode, FollowViews
from lowtide.frameworks.torch.rewrites.overwritten_inputs import SaveOldContents
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.frameworks.torch.rewrites.saved_values import (
    SaveInputsFlat,
    SaveMasksAsBytes,
    TakeInputsFlat,
    TakeMasksAsBytes,
)
from lowtide.frameworks.torch.rewrites.split_ops import SplitDropout
from lowtide.frameworks.torch.rewrites.stored_values import CopyIntoConcatenations, StoreEarlyValues
from lowtide.frameworks.torch.rewrites.table import CHECKPOINTED, JOINT, RUNS_AGAIN


class Partitioner:
    """A `partition_fn` for AOTAutograd.

    `because` is the reason not to plan Inductor's kernels. Without `is_planned`, only the program's sizes are read,
    except where ranks must agree on it.
    """

    def __init__(
        self,
        options: Options,
        own_peak_bytes: int | None = None,
        share: Share | None = None,
        name: str | None = None,
        *,
        because: str | None = None,
        is_planned: bool = True,
    ) -> None:
        self.options = options
        self._because = because
        self._is_planned = is_planned
        self.own_peak_bytes = own_peak_bytes
        self._share = share
        self._name = name

    def __call__(
        self,
        joint: GraphModule,
        joint_inputs: Sequence[Any],
        *,
        num_fwd_outputs: int,
        static_lifetime_input_indices: Sequence[int] | None = None,
        **others: Any,
    ) -> tuple[GraphModule, GraphModule]:
        name = self._name or new_name(joint.graph)
        static = list(static_lifetime_input_indices or ())
        given = {"num_fwd_outputs": num_fwd_outputs, "static_lifetime_input_indices": static, **others}
        try:
            planned, forward, backward = self._partition(name, joint, joint_inputs, static, given)
        except InputError as error:
            warnings.warn(f"lowtide: {name} is left to PyTorch's own partitioner: {error}", stacklevel=2)
            return _partition_as_pytorch_does(joint, joint_inputs, given)
        saved = [hinted_value_of(node) for node in outputs_of(forward)[num_fwd_outputs:]]
        tensors = [each for each in saved if isinstance(each, torch.Tensor)]
        planned.saved_bytes.extend(hint(each.numel()) * each.element_size() for each in tensors)
        return forward, backward

    def _partition(
        self, name: str, joint: GraphModule, joint_inputs: Sequence[Any], static: Sequence[int], given: dict[str, Any]
    ) -> tuple[PlannedModule, GraphModule, GraphModule]:
        n_outputs: int = given["num_fwd_outputs"]
        if self.options.compiler == "inductor":
            marked = copied_graph(joint)
            (drop_recompute_marks if "recompute" in self.options.techniques else save_random_draws)(marked.graph)
            forward, backward = _partition_as_pytorch_does(marked, joint_inputs, given, draws_are_saved=True)
            planned = self.plan(name, self._ready(rejoin(forward, backward, n_outputs)), joint, static)
            result = planned.result
            is_its_own = not result.reruns and not result.moved_ops and not result.transfers.bytes_out
            add_rest(planned.module, joint)
            if is_its_own and not is_step(joint):
                if self.options.budget is not None:
                    forward, backward = _with_flat_inputs(forward, backward, n_outputs)
                return planned, *_with_masks_as_bytes(forward, backward, n_outputs)
            # a first run whose result is only recomputed would never run, but its inputs would be saved
            stored = run_rewrites(planned.module, [DropDeadCode(), StoreEarlyValues(), CopyIntoConcatenations()])
            return planned, *split_for_inductor(stored, joint, n_outputs)
        whole = self._ready(self._written(joint, n_outputs))
        if "recompute" not in self.options.techniques:
            whole = run_rewrites(whole, CHECKPOINTED)
        planned = self.plan(name, whole, joint, static, self._pytorch_partition(joint, joint_inputs, given))
        return planned, *split(planned.module, joint, n_outputs)

    def _pytorch_partition(
        self, joint: GraphModule, joint_inputs: Sequence[Any], given: dict[str, Any]
    ) -> GraphModule | None:
        marked = copied_graph(joint)
        save_random_draws(marked.graph)
        try:
            with patched_autograd({"activation_memory_budget": 1.0}):  # a lower value may repeat random draws
                forward, backward = _partition_as_pytorch_does(marked, joint_inputs, given, draws_are_saved=True)
            return self._ready(rejoin(forward, backward, given["num_fwd_outputs"]))
        except UnsupportedError:
            return None

    def _written(self, joint: GraphModule, n_outputs: int) -> GraphModule:
        module = run_rewrites(copied_graph(joint), JOINT)
        split_dropout = [SplitDropout()] if self._may_repeat(module.graph) else []
        return run_rewrites(module, [*split_dropout, InsertBoundary(n_outputs)])

    def _may_repeat(self, graph: Graph) -> bool:
        return bool(self.options.techniques & {"recompute", "offload"}) or has_checkpoints(graph)

    def _ready(self, whole: GraphModule) -> GraphModule:
        """Let views share the right storage, and overwritten tensors allow recomputation."""
        return run_rewrites(whole, RUNS_AGAIN if self._may_repeat(whole.graph) else [FollowViews()])

    def plan(
        self,
        name: str,
        whole: GraphModule,
        joint: GraphModule,
        static: Sequence[int],
        own: GraphModule | None = None,
    ) -> PlannedModule:
        inputs = whole.graph.find_nodes(op="placeholder")
        if len(inputs) != sum(not is_tangent(node) for node in joint.graph.find_nodes(op="placeholder")):
            raise UnsupportedError("its backward pass has inputs of its own, such as random seeds")
        if self.options.budget is not None:
            limit_to_bucket(map(value_of, inputs))
        if self._is_planned or not _has_only_sizes(whole, self.options):
            planned = plan_module(name, whole, set(static), self.options, own, self.own_peak_bytes, self._share)
            planned = replace(planned, ops_because=self._because)
        else:
            planned = unplanned_module(name, whole, set(static), self.options)
        register(planned)
        return planned


def _has_only_sizes(whole: GraphModule, options: Options) -> bool:
    calls_graphs = any(higher_order_of(node.target) is not None for node in whole.graph.nodes)
    return not calls_graphs and partners(whole, options.same_on_all_ranks) is None


def partition_for_kernels(joint: GraphModule, joint_inputs: Sequence[Any], given: dict[str, Any]) -> GraphModule:
    """Return PyTorch's own partition as one program. Only a plan decides about checkpointed ops."""
    marked = copied_graph(joint)
    drop_recompute_marks(marked.graph)
    forward, backward = _partition_as_pytorch_does(marked, joint_inputs, given, draws_are_saved=True)
    return rejoin(forward, backward, given["num_fwd_outputs"])


def split_for_inductor(whole: GraphModule, joint: GraphModule, n_outputs: int) -> tuple[GraphModule, GraphModule]:
    """Return both passes of a planned program, with inputs and masks in the fastest form for kernels."""
    forward, backward = _with_flat_inputs(*split(whole, joint, n_outputs), n_outputs)
    return _with_masks_as_bytes(forward, backward, n_outputs)


def _partition_as_pytorch_does(
    joint: GraphModule, joint_inputs: Sequence[Any], given: dict[str, Any], *, draws_are_saved: bool = False
) -> tuple[GraphModule, GraphModule]:
    forward, backward = partition_as_pytorch_does(joint, joint_inputs, draws_are_saved=draws_are_saved, **given)
    return run_rewrites(forward, [SaveOldContents(given["num_fwd_outputs"])]), backward


def _with_flat_inputs(forward: GraphModule, backward: GraphModule, n_outputs: int) -> tuple[GraphModule, GraphModule]:
    save = SaveInputsFlat(n_outputs)
    names = tuple(node.name for node in save.sites(forward))
    return run_rewrites(forward, [save]), run_rewrites(backward, [TakeInputsFlat(names)])


def _with_masks_as_bytes(
    forward: GraphModule, backward: GraphModule, n_outputs: int
) -> tuple[GraphModule, GraphModule]:
    taken = TakeMasksAsBytes(tuple(node.name for node in backward.graph.find_nodes(op="placeholder")))
    save = SaveMasksAsBytes(n_outputs, tuple(node.name for node in taken.sites(backward)))
    names = tuple(node.name for node in save.sites(forward))
    return run_rewrites(forward, [save]), run_rewrites(backward, [TakeMasksAsBytes(names)])


def has_checkpoints(graph: Graph) -> bool:
    return any(must_recompute(node) for node in graph.nodes)


def drop_recompute_marks(graph: Graph) -> None:
    """Remove recompute marks. Tensors that a selective policy saves stay saved."""
    for node in graph.nodes:
        if must_recompute(node):
            del node.meta["recompute"]


def save_random_draws(graph: Graph) -> None:
    """Save random draws in checkpointed regions, which PyTorch would repeat."""
    for node in graph.nodes:
        if must_recompute(node) and is_random(node):
            for drawn in (node, *(user for user in node.users if user.target is operator.getitem)):
                mark_must_save(drawn)
