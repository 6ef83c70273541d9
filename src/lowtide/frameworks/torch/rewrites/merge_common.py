"""Ops that compute the same become one, as PyTorch's own partitioner has it before it decides."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.aot_autograd import merge_common_subexpressions, merges_common_subexpressions
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite


@dataclass(frozen=True)
class MergeCommonSubexpressions(Rewrite[Node]):
    """Let one node stand for all pure ones with the same op and arguments, unless PyTorch's configuration says no."""

    name = "merge-common-subexpressions"
    source = "PyTorch's partitioner, by its own function."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the output node; PyTorch's own function finds the ops to merge."""
        return list(module.graph.find_nodes(op="output")) if merges_common_subexpressions() else []

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        """Give the module the merged graph."""
        merge_common_subexpressions(module)
        return module
