"""What the user marked under `torch.utils.checkpoint`, and who decides about it.

With a budget, lowtide chooses what runs again; of the user's marks it heeds only what a selective policy says must be
saved. Without a budget, the user's choice is carried out.
"""

import operator

from torch.fx import Graph

from lowtide.frameworks.torch.internals.aot_autograd import mark_must_save, must_recompute
from lowtide.frameworks.torch.reading.effects import is_random


def has_checkpoints(graph: Graph) -> bool:
    """Tell whether the user marked anything to be run again in the backward pass."""
    return any(must_recompute(node) for node in graph.nodes)


def leave_to_plan(graph: Graph) -> None:
    """Forget what the user marked to be run again, so that only the plan says what does."""
    for node in graph.nodes:
        if must_recompute(node):
            del node.meta["recompute"]


def save_draws(graph: Graph) -> None:
    """Have the random draws within checkpointed regions saved: PyTorch would draw again from a saved random state."""
    for node in graph.nodes:
        if must_recompute(node) and is_random(node):
            for drawn in (node, *(user for user in node.users if user.target is operator.getitem)):
                mark_must_save(drawn)
