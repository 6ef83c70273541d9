"""Blocks of a DeepSeek-V3-like mixture of experts: latent attention, and experts on different ranks."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

from examples.one_rank.mesh import Exchanged, Gated, Linear, Mesh, Weight, attention


@dataclass(frozen=True)
class Mixture:
    """The sizes of a mixture of experts. The first blocks have no experts."""

    layers: int
    width: int
    heads: int
    hidden: int
    dense_layers: int
    experts: int
    chosen: int
    expert_hidden: int
    vocabulary: int = 129280
    query_latent: int = 1536
    key_latent: int = 512
    head: int = 128
    rotated: int = 64
    load: float = 1.0
    """The most tokens for the experts of one rank, in equal shares."""

    def block(self, mesh: Mesh, index: int) -> nn.Module:
        """Return the block at an index."""
        if index < self.dense_layers:
            return Block(self, mesh, Gated(mesh.world, self.width, self.hidden))
        return Block(self, mesh, Experts(self, mesh))


class LatentAttention(nn.Module):
    """Attention with queries, keys and values from narrow latents. Each rank has other tokens."""

    def __init__(self, model: Mixture, mesh: Mesh) -> None:
        super().__init__()
        self.heads, self.head, self.rotated = model.heads, model.head, model.rotated
        self.query_latent = Linear(mesh.world, model.width, model.query_latent)
        self.key_latent = Linear(mesh.world, model.width, model.key_latent + model.rotated)
        self.norm_query, self.norm_key = nn.RMSNorm(model.query_latent), nn.RMSNorm(model.key_latent)
        self.query = Linear(mesh.world, model.query_latent, model.heads * (model.head + model.rotated))
        self.key = Linear(mesh.world, model.key_latent, model.heads * 2 * model.head)
        self.out = Linear(mesh.world, model.heads * model.head, model.width)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        query = self.query(self.norm_query(self.query_latent(value))).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        latent, shared = self.key_latent(value).split((self.norm_key.normalized_shape[0], self.rotated), -1)
        both = self.key(self.norm_key(latent)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        key, content = both.chunk(2, -1)
        key = torch.cat((key, shared.unsqueeze(1).expand(-1, self.heads, -1, -1)), -1)
        # The kernel accepts only values that are as wide as keys.
        attended = attention(query, key, functional.pad(content, (0, self.rotated)))[..., : self.head]
        return self.out(attended.transpose(1, 2).flatten(2))


class Routing(Protocol):
    """The sizes of experts."""

    @property
    def width(self) -> int: ...
    @property
    def experts(self) -> int: ...
    @property
    def chosen(self) -> int: ...
    @property
    def expert_hidden(self) -> int: ...
    @property
    def load(self) -> float: ...


class Experts(nn.Module):
    """Experts that each token chooses, beside a layer for all tokens. Tensor-parallel ranks have other experts."""

    def __init__(self, model: Routing, mesh: Mesh, *, has_shared: bool = True) -> None:
        super().__init__()
        self.model, self.group = model, mesh.tensor
        self.held = model.experts // mesh.tensor.size()
        self.shared = Gated(mesh.world, model.width, model.expert_hidden) if has_shared else None
        self.router = nn.Linear(model.width, model.experts, bias=False)
        self.gate, self.up = (Weight(mesh.data, self.held, model.expert_hidden, model.width) for _ in range(2))
        self.down = Weight(mesh.data, self.held, model.width, model.expert_hidden)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        tokens, model, ranks = value.flatten(0, 1), self.model, self.group.size()
        trust, chosen = torch.sigmoid(self.router(tokens)).topk(model.chosen)
        by_expert = chosen.flatten().argsort()
        rows, sent = tokens[by_expert // model.chosen], by_expert.shape[0]
        received = int(sent * model.load) // (ranks * self.held) * (ranks * self.held)
        given = Exchanged.apply(rows, received, self.group).unflatten(0, (ranks, self.held, -1))
        made = self._of_experts(given.transpose(0, 1).flatten(0, 2))
        back = made.unflatten(0, (self.held, ranks, -1)).transpose(0, 1).flatten(0, 2)
        weighed = Exchanged.apply(back, sent, self.group) * trust.flatten()[by_expert].unsqueeze(1)
        summed = torch.zeros_like(tokens).index_add(0, by_expert // model.chosen, weighed).view_as(value)
        return summed if self.shared is None else self.shared(value) + summed

    def _of_experts(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the output of the experts for rows sorted by expert, an equal number for each."""
        ends = torch.arange(1, self.held + 1, dtype=torch.int32, device=rows.device) * (rows.shape[0] // self.held)
        gate, up, down = (each().transpose(1, 2) for each in (self.gate, self.up, self.down))
        hidden = functional.silu(functional.grouped_mm(rows, gate, offs=ends))
        return functional.grouped_mm(hidden * functional.grouped_mm(rows, up, offs=ends), down, offs=ends)


class Block(nn.Module):
    """Latent attention and a second layer, both with residual connections."""

    def __init__(self, model: Mixture, mesh: Mesh, after: nn.Module) -> None:
        super().__init__()
        self.norm_attention, self.norm_after = nn.RMSNorm(model.width), nn.RMSNorm(model.width)
        self.attention, self.after = LatentAttention(model, mesh), after

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = value + self.attention(self.norm_attention(value))
        return value + self.after(self.norm_after(value))
