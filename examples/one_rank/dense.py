"""Blocks of a Llama-like model, each split over the tensor-parallel ranks."""

from dataclasses import dataclass
from typing import Protocol

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

    @property
    def head(self) -> int:
        """The width of an attention head."""
        return self.width // self.heads

    def block(self, mesh: Mesh, _: int) -> nn.Module:
        """Return a block. All have the same sizes."""
        return Block(self, mesh, Gated(mesh.data, self.width, self.hidden // mesh.tensor.size()))


class GroupedAttention(Protocol):
    """The sizes of attention in which several heads share a key."""

    @property
    def width(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def key_heads(self) -> int: ...
    @property
    def head(self) -> int: ...


class Block(nn.Module):
    """Attention and a second layer, both split over the tensor-parallel ranks."""

    def __init__(self, model: GroupedAttention, mesh: Mesh, after: nn.Module) -> None:
        super().__init__()
        ranks = mesh.tensor.size()
        self.mesh, self.head = mesh, model.head
        self.heads, self.key_heads = model.heads // ranks, model.key_heads // ranks
        self.norm_attention, self.norm_after = nn.RMSNorm(model.width), nn.RMSNorm(model.width)
        self.query = Linear(mesh.data, model.width, self.heads * self.head)
        self.key, self.value = (Linear(mesh.data, model.width, self.key_heads * self.head) for _ in range(2))
        self.out = Linear(mesh.data, self.heads * self.head, model.width)
        self.after = after

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
        given = Copied.apply(self.norm_after(value), self.mesh.tensor)
        return value + Summed.apply(self.after(given), self.mesh.tensor)
