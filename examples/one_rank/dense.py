"""Blocks of a Llama-like model, each split over the tensor-parallel ranks."""

from dataclasses import dataclass

import torch
from torch import nn

from examples.one_rank.mesh import Copied, Gated, Linear, Mesh, Summed, attention


@dataclass(frozen=True)
class Dense:
    """The sizes of a Llama-like model."""

    layers: int
    width: int
    heads: int
    key_heads: int
    hidden: int
    vocabulary: int = 128256

    def block(self, mesh: Mesh, _: int) -> nn.Module:
        """Return a block. All have the same sizes."""
        return Block(self, mesh)


class Block(nn.Module):
    """Attention and a gated layer, both split over the tensor-parallel ranks."""

    def __init__(self, model: Dense, mesh: Mesh) -> None:
        super().__init__()
        ranks = mesh.tensor.size()
        self.mesh, self.head = mesh, model.width // model.heads
        self.heads, self.key_heads = model.heads // ranks, model.key_heads // ranks
        self.norm_attention, self.norm_gate = nn.RMSNorm(model.width), nn.RMSNorm(model.width)
        self.query = Linear(mesh.data, model.width, self.heads * self.head)
        self.key, self.value = (Linear(mesh.data, model.width, self.key_heads * self.head) for _ in range(2))
        self.out = Linear(mesh.data, self.heads * self.head, model.width)
        self.gated = Gated(mesh.data, model.width, model.hidden // ranks)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        batch, length, _ = value.shape
        given = Copied.apply(self.norm_attention(value), self.mesh.tensor)
        query = self.query(given).view(batch, length, self.heads, self.head).transpose(1, 2)
        key, content = (
            layer(given).view(batch, length, self.key_heads, self.head).transpose(1, 2)
            for layer in (self.key, self.value)
        )
        repeats = self.heads // self.key_heads
        attended = attention(query, key.repeat_interleave(repeats, 1), content.repeat_interleave(repeats, 1))
        value = value + Summed.apply(self.out(attended.transpose(1, 2).flatten(2)), self.mesh.tensor)
        given = Copied.apply(self.norm_gate(value), self.mesh.tensor)
        return value + Summed.apply(self.gated(given), self.mesh.tensor)
