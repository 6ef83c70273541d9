"""Parts of concatenations that Inductor must copy there, rather than compute in their place there."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.operators import copy_in_inductor, define_operator, is_view
from lowtide.frameworks.torch.rewrites.kernel_places import kernel_places
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, call_like

COPIED = define_operator("copied(Tensor value) -> Tensor", torch.clone)
"""A copy of its argument that Inductor takes into the kernel which uses it, and leaves there."""


@dataclass(frozen=True)
class CopyIntoConcatenations(Rewrite[tuple[Node, Node]]):
    """Let what is concatenated, in a planned graph, lie on its own where the plan keeps it before or after.

    Computed in its place, it keeps all of the concatenation alive: from the first part on, as where a U-Net joins both
    of its sides, and for as long as any part is used.
    """

    name = "copy-into-concatenations"
    source = "Inductor's ConcatKernel, which makes its operands views of its result on the CPU."

    def sites(self, module: GraphModule) -> Sequence[tuple[Node, Node]]:
        """Return concatenations with a part each that is made before, or used after, another kernel runs."""
        places = kernel_places(module.graph, element_wise=False)
        ends = _last_uses(module.graph, places)
        joined = module.graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default)
        return [
            (join, part)
            for join in joined
            for part in dict.fromkeys(join.all_input_nodes)
            if _may_lie_within(part) and (places[part] < places[join] or ends[part] > ends[join])
        ]

    def apply(self, module: GraphModule, sites: Sequence[tuple[Node, Node]]) -> GraphModule:
        """Join copies of those parts."""
        copy_in_inductor(COPIED)
        for join, part in sites:
            with module.graph.inserting_before(join):
                join.replace_input_with(part, call_like(join, module.graph, COPIED, part))
        return module


def _may_lie_within(part: Node) -> bool:
    return part.op == "call_function" and not is_view(part.target) and isinstance(value_of(part), Tensor)


def _last_uses(graph: Graph, places: dict[Node, int]) -> dict[Node, int]:
    """Return where a value is used last, by itself or by way of views."""
    ends = dict[Node, int]()
    for node in reversed(list(graph.nodes)):
        uses = (ends[user] if is_view(user.target) else places[user] for user in node.users)
        ends[node] = max(uses, default=places[node])
    return ends
