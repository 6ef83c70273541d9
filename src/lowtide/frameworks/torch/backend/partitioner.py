"""The partitioner: what runs in the forward pass, what is saved, what runs again, read off one plan of the whole."""

import warnings
from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule

from lowtide.errors import InputError
from lowtide.frameworks.torch.backend.boundary import is_tangent, with_boundary
from lowtide.frameworks.torch.backend.compiler_internals import (
    merge_common_subexpressions,
    partition_as_pytorch_does,
)
from lowtide.frameworks.torch.backend.options import Options
from lowtide.frameworks.torch.backend.planning import plan_module
from lowtide.frameworks.torch.backend.programs import remember
from lowtide.frameworks.torch.backend.split import split
from lowtide.frameworks.torch.canonicalize import canonicalize
from lowtide.frameworks.torch.dropout import split_dropout
from lowtide.frameworks.torch.snapshots import snapshot_overwritten_inputs
from lowtide.graph import Lifetime


class Partitioner:
    """A `partition_fn` for AOTAutograd."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._count = 0

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
        name = f"graph {self._count}"
        self._count += 1
        try:
            return self._partition(name, joint, num_fwd_outputs, static_lifetime_input_indices or ())
        except InputError as error:
            warnings.warn(f"lowtide: {name} is left to PyTorch's own partitioner: {error}", stacklevel=2)
            return partition_as_pytorch_does(
                joint,
                joint_inputs,
                num_fwd_outputs=num_fwd_outputs,
                static_lifetime_input_indices=list(static_lifetime_input_indices or ()),
                **others,
            )

    def _partition(
        self, name: str, joint: GraphModule, n_forward_outputs: int, static_inputs: Sequence[int]
    ) -> tuple[GraphModule, GraphModule]:
        module = GraphModule(joint, joint.graph)
        canonicalize(module.graph)
        module.graph.eliminate_dead_code()
        merge_common_subexpressions(module)
        if "recompute" in self.options.means:
            split_dropout(module.graph)
            snapshot_overwritten_inputs(module.graph)
        held = set(static_inputs)
        whole = with_boundary(module, n_forward_outputs)
        primals = [node for node in module.graph.find_nodes(op="placeholder") if not is_tangent(node)]
        by_name = {node.name: node for node in whole.graph.find_nodes(op="placeholder")}
        lifetimes = {
            by_name[node.name]: Lifetime.PERSISTENT if place in held else Lifetime.INPUT
            for place, node in enumerate(primals)
        }
        planned = plan_module(name, whole, lifetimes, self.options)
        remember(planned)
        return split(planned.module, module, n_forward_outputs)
