"""Blocks of a Qwen3-like mixture of experts: attention with shared keys, and experts without a layer for all tokens."""

from dataclasses import dataclass

from torch import nn

from examples.one_rank.dense import Block
from examples.one_rank.mesh import Mesh
from examples.one_rank.mixture import Experts


@dataclass(frozen=True)
class GroupedMixture:
    """The sizes of a mixture of experts in every block."""

    layers: int
    width: int
    heads: int
    key_heads: int
    head: int
    experts: int
    chosen: int
    expert_hidden: int
    vocabulary: int = 151936
    load: float = 1.0
    """The most tokens for the experts of one rank, in equal shares."""

    def block(self, mesh: Mesh, _: int) -> nn.Module:
        """Return a block. All have the same sizes."""
        return Block(self, mesh, Experts(self, mesh, has_shared=False))
