"""A decoder whose blocks keep for the backward pass what a policy says."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from examples.one_rank.dense import Dense
from examples.one_rank.mesh import Linear, Mesh, collectives
from examples.one_rank.mixture import Mixture

aten = torch.ops.aten
_SAVED = (
    aten.mm.default,
    aten._scaled_dot_product_flash_attention.default,
    collectives.reduce_scatter_tensor.default,
    collectives.all_to_all_single.default,
)


def _saves_products(_: Any, op: Any, *__: Any, **___: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in _SAVED else CheckpointPolicy.PREFER_RECOMPUTE


POLICIES: dict[str, Callable[[nn.Module, torch.Tensor], torch.Tensor]] = {
    "none": lambda block, value: block(value),
    "full": lambda block, value: checkpoint(block, value, use_reentrant=False),
    "selective": lambda block, value: checkpoint(
        block,
        value,
        use_reentrant=False,
        context_fn=partial(create_selective_checkpoint_contexts, _saves_products, allow_cache_entry_mutation=True),
    ),
}
"""What blocks keep for the backward pass: all, their input, or products and attention, as in torchtitan."""


class Decoder(nn.Module):
    """Blocks between an embedding and a head; every rank holds the whole embedding."""

    def __init__(self, model: Dense | Mixture, mesh: Mesh, policy: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(model.vocabulary, model.width)
        self.blocks = nn.ModuleList(model.block(mesh, index) for index in range(model.layers))
        self.norm, self.head = nn.RMSNorm(model.width), Linear(mesh.data, model.width, model.vocabulary)
        self.policy = policy

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        value = self.embedding(tokens)
        for block in self.blocks:
            value = POLICIES[self.policy](block, value)
        scores = self.head(self.norm(value))[:, :-1].flatten(0, 1)
        return nn.functional.cross_entropy(scores, tokens[:, 1:].flatten())
