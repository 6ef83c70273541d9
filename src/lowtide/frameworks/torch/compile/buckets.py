"""Dynamic shapes: a plan for a budget serves sizes up to the next power of two; beyond, PyTorch compiles again."""

import torch
from torch.fx import GraphModule

from lowtide.frameworks.torch.internals.hints import hint
from lowtide.frameworks.torch.internals.nodes import value_of


def keep_to_bucket(module: GraphModule) -> None:
    """Make the graph that is being compiled valid only for sizes between two powers of two.

    What fits a budget at one size need not fit it at another. The graph is guarded as if the user had asked for the
    comparison, so that a call with a size outside is compiled, and thus planned, for that size.
    """
    for node in module.graph.find_nodes(op="placeholder"):
        size = value_of(node)
        if isinstance(size, torch.SymInt):
            most = 1 << max(hint(size) - 1, 1).bit_length()
            bool(size <= most)
            bool(size > most // 2)
