"""The partitioner: what runs in the forward pass, what is saved, what runs again, read off one plan of the whole."""

import warnings
from collections.abc import Sequence
from typing import Any

from torch.fx import Graph, GraphModule, Node

from lowtide.errors import InputError, UnsupportedError
from lowtide.frameworks.torch.backend.boundary import is_tangent, with_boundary
from lowtide.frameworks.torch.backend.buckets import keep_to_bucket
from lowtide.frameworks.torch.backend.checkpoints import (
    has_checkpoints,
    leave_to_plan,
    repeat_checkpointed,
    save_draws,
)
from lowtide.frameworks.torch.backend.compiler_internals import (
    let_views_follow,
    merge_common_subexpressions,
    partition_as_pytorch_does,
)
from lowtide.frameworks.torch.backend.names import new_name
from lowtide.frameworks.torch.backend.old_contents import save_old_contents
from lowtide.frameworks.torch.backend.options import Options
from lowtide.frameworks.torch.backend.planning import PlannedModule, plan_module
from lowtide.frameworks.torch.backend.programs import remember
from lowtide.frameworks.torch.backend.rejoin import rejoin
from lowtide.frameworks.torch.backend.split import split
from lowtide.frameworks.torch.canonicalize import canonicalize
from lowtide.frameworks.torch.dropout import split_dropout
from lowtide.frameworks.torch.snapshots import snapshot_overwritten_inputs
from lowtide.graph import Lifetime


class Partitioner:
    """A `partition_fn` for AOTAutograd.

    The eager compiler starts from the program as it is written, with everything saved that the backward pass uses. For
    Inductor the start is what PyTorch's partitioner makes of it: running fusible ops again saves time there.
    """

    def __init__(self, options: Options) -> None:
        self.options = options

    def __call__(
        self,
        joint: GraphModule,
        joint_inputs: Sequence[Any],
        *,
        num_fwd_outputs: int,
        static_lifetime_input_indices: Sequence[int] | None = None,
        **others: Any,
    ) -> tuple[GraphModule, GraphModule]:
        """Split a joint graph as its plan says; where it cannot be planned, as PyTorch does, with a warning."""
        name = new_name(joint.graph)
        static = list(static_lifetime_input_indices or ())
        given = {"num_fwd_outputs": num_fwd_outputs, "static_lifetime_input_indices": static, **others}
        try:
            return self._partition(name, joint, joint_inputs, static, given)
        except InputError as error:
            warnings.warn(f"lowtide: {name} is left to PyTorch's own partitioner: {error}", stacklevel=2)
            return _partition_as_pytorch_does(joint, joint_inputs, given)

    def _partition(
        self, name: str, joint: GraphModule, joint_inputs: Sequence[Any], static: Sequence[int], given: dict[str, Any]
    ) -> tuple[GraphModule, GraphModule]:
        n_outputs: int = given["num_fwd_outputs"]
        if self.options.compiler == "inductor":
            marked = _copy(joint)
            (leave_to_plan if "recompute" in self.options.means else save_draws)(marked.graph)
            forward, backward = _partition_as_pytorch_does(marked, joint_inputs, given)
            travel = "offload" in self.options.means  # all that reads a traveler must be known
            whole = rejoin(forward, backward, n_outputs, count_reruns=travel)
            planned = self._plan(name, whole, joint, static)
            result = planned.result
            if not result.reruns and not result.moved_ops and not result.transfers.bytes_out:
                return forward, backward
            from lowtide.frameworks.torch.inductor.saved_inputs import save_inputs_flat
            from lowtide.frameworks.torch.inductor.stored_values import store_early_values

            store_early_values(planned.module.graph)
            return save_inputs_flat(*split(planned.module, joint, n_outputs), n_outputs)
        planned = self._plan(name, self._written(joint, n_outputs), joint, static)
        return split(planned.module, joint, n_outputs)

    def _written(self, joint: GraphModule, n_outputs: int) -> GraphModule:
        """Return the program as it is written, in a form that says which ops may run again."""
        module = _copy(joint)
        canonicalize(module.graph)
        module.graph.eliminate_dead_code()
        merge_common_subexpressions(module)
        if self._may_repeat(module.graph):
            split_dropout(module.graph)
        return with_boundary(module, n_outputs)

    def _may_repeat(self, graph: Graph) -> bool:
        """Tell whether ops may run again, or what they make may visit the host, which needs the same."""
        return bool(self.options.means & {"recompute", "offload"}) or has_checkpoints(graph)

    def _plan(self, name: str, whole: GraphModule, joint: GraphModule, static: Sequence[int]) -> PlannedModule:
        if self._may_repeat(whole.graph):
            snapshot_overwritten_inputs(whole.graph)
            let_views_follow(whole.graph)
        if "recompute" not in self.options.means and self.options.compiler == "eager":
            repeat_checkpointed(whole.graph)
        inputs = whole.graph.find_nodes(op="placeholder")
        if len(inputs) != sum(not is_tangent(node) for node in joint.graph.find_nodes(op="placeholder")):
            raise UnsupportedError("its backward pass takes inputs of its own, such as random seeds")
        held = set(static)
        lifetimes = {
            node: Lifetime.PERSISTENT if place in held else Lifetime.INPUT for place, node in enumerate(inputs)
        }
        if self.options.budget is not None:
            keep_to_bucket(whole)
        planned = plan_module(name, whole, lifetimes, self.options)
        remember(planned)
        return planned


def _partition_as_pytorch_does(
    joint: GraphModule, joint_inputs: Sequence[Any], given: dict[str, Any]
) -> tuple[GraphModule, GraphModule]:
    forward, backward = partition_as_pytorch_does(joint, joint_inputs, **given)
    save_old_contents(forward, given["num_fwd_outputs"])
    return forward, backward


def _copy(module: GraphModule) -> GraphModule:
    graph, made = Graph(), dict[Node, Node]()
    for node in module.graph.nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
    return GraphModule(module, graph)
