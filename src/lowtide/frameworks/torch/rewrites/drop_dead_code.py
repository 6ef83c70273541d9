"""Ops whose results nobody uses go; replacing others leaves such."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.rewrites.rewrite import Rewrite


@dataclass(frozen=True)
class DropDeadCode(Rewrite[Node]):
    """Erase what computes nothing that is used; what has effects stays."""

    name = "drop-dead-code"
    source = "FX's elimination of dead code."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the ops without users."""
        return [node for node in module.graph.nodes if not node.users and not node.is_impure()]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        """Erase them, and what only they used."""
        module.graph.eliminate_dead_code()
        return module
