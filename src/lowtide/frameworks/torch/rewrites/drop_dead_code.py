"""Ops whose results nobody uses go; replacing others leaves such."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.operators import overload_of
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite


@dataclass(frozen=True)
class DropDeadCode(Rewrite[Node]):
    """Erase what computes nothing that is used; what has effects stays, and so do lowtide's own ops, which may."""

    name = "drop-dead-code"
    source = "FX's elimination of dead code."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the ops without users."""
        return [node for node in module.graph.nodes if not node.users and not _stays(node)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        """Erase them, and what only they used."""
        module.graph.eliminate_dead_code(_stays)
        return module


def _stays(node: Node) -> bool:
    overload = overload_of(node.target)
    return node.is_impure() or (overload is not None and overload.namespace == "lowtide")
