"""Dynamic shapes: a plan for a budget serves sizes up to the next power of two; beyond, PyTorch compiles again."""

from collections.abc import Iterable
from typing import Any

import torch

from lowtide.frameworks.torch.internals.tensors import plan_at_most, traced_with


def keep_to_bucket(inputs: Iterable[Any]) -> None:
    """Make the graph that is being compiled valid only for sizes between two powers of two, and plan it at the larger.

    What fits a budget at one size need not fit it at another. The graph is guarded as if the user had asked for the
    comparison, so that a call with a size outside is compiled, and thus planned, for that size. `inputs` are those of
    the graph, or what stands for them.
    """
    for size in inputs:
        if isinstance(size, torch.SymInt):
            most = 1 << max(traced_with(size) - 1, 1).bit_length()
            bool(size <= most)
            bool(size > most // 2)
            plan_at_most(size, most)
