"""Views lie where what they look at lies: PyTorch merges and copies ops, and leaves their views behind, and its tracing
gives views of a constant a storage of their own."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import storages_of, value_of
from lowtide.frameworks.torch.internals.operators import is_view
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite


@dataclass(frozen=True)
class FollowViews(Rewrite[Node]):
    """Derive values anew for views whose storage none of their inputs has; the program itself stays as it is."""

    name = "follow-views"
    source = "A view lies in the storage of its input, as its schema says."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the views that look at something else."""
        return [node for node in module.graph.nodes if _looks_past_its_inputs(node)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        """Forget their values."""
        for node in sites:
            del node.meta["val"]
        return module


def _looks_past_its_inputs(node: Node) -> bool:
    """Tell whether a view or an item of a tuple lies in a storage that none of its inputs has: one that is gone."""
    looks = node.target is operator.getitem or is_view(node.target)
    known = all(value_of(source) is not None for source in node.all_input_nodes)
    return looks and known and bool(storages_of(node) - storages_of(*node.all_input_nodes))
