"""A decoder with a checkpointing policy for its blocks."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from examples.one_rank.dense import Dense
from examples.one_rank.grouped_mixture import GroupedMixture
from examples.one_rank.mesh import Linear, Mesh, collectives
from examples.one_rank.mixture import Mixture

aten = torch.ops.aten
_KEPT = (
    aten._scaled_dot_product_flash_attention.default,
    collectives.reduce_scatter_tensor.default,
    collectives.all_to_all_single.default,
)


Block = Callable[[torch.Tensor], torch.Tensor]


def _keeps_products() -> Any:
    """Save attention, results of collectives, and every second product, starting with the first."""
    products: Counter[bool] = Counter()

    def policy(context: SelectiveCheckpointContext, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        again = context.is_recompute
        products[again] += op == aten.mm.default
        is_kept = op in _KEPT or (op == aten.mm.default and products[again] % 2 == 1)
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy, allow_cache_entry_mutation=True)


def _full(block: Block, value: torch.Tensor, _: int) -> torch.Tensor:
    return checkpoint(block, value, use_reentrant=False)


POLICIES: dict[str, Callable[[Block, torch.Tensor, int], torch.Tensor]] = {
    "none": lambda block, value, _: block(value),
    "full": _full,
    "selective": lambda block, value, _: checkpoint(block, value, use_reentrant=False, context_fn=_keeps_products),
    "every second": lambda block, value, index: _full(block, value, index) if index % 2 else block(value),
}
"""Tensors that blocks save for backward: all; the input of each block; attention and some products; the input of every
second block.

The last two are torchtitan's selective policies, by op and by layer.
"""


class Decoder(nn.Module):
    """Blocks between an embedding and a head. Each rank has the whole embedding."""

    def __init__(self, model: Dense | Mixture | GroupedMixture, mesh: Mesh, policy: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(model.vocabulary, model.width)
        self.blocks = nn.ModuleList(model.block(mesh, index) for index in range(model.layers))
        self.norm, self.head = nn.RMSNorm(model.width), Linear(mesh.data, model.width, model.vocabulary)
        self.policy = policy

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        value = self.embedding(tokens)
        for index, block in enumerate(self.blocks):
            value = POLICIES[self.policy](block, value, index)
        scores = self.head(self.norm(value))[:, :-1].flatten(0, 1)
        return nn.functional.cross_entropy(scores, tokens[:, 1:].flatten())
