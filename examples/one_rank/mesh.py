"""Rank 0 of a fake process group, its collectives, and layers with sharded weights."""

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

collectives = torch.ops._c10d_functional


@dataclass(frozen=True)
class Mesh:
    """The process groups of rank 0."""

    data: dist.ProcessGroup
    """Data-parallel ranks: other data, the same part of each split layer."""
    tensor: dist.ProcessGroup
    """Tensor-parallel ranks: other parts of each layer, or other experts."""
    world: dist.ProcessGroup
    """All ranks."""

    @classmethod
    def fake(cls, data: int, tensor: int) -> "Mesh":
        """Act as rank 0 of data x tensor ranks. Tensor-parallel ranks have consecutive numbers."""
        ranks = data * tensor
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
        groups = [dist.new_group(list(each)) for each in (range(0, ranks, tensor), range(tensor), range(ranks))]
        return cls(*cast("list[dist.ProcessGroup]", groups))


class Gathered(torch.autograd.Function):
    """Gather a weight from equal shards on the ranks of a group. Its gradient is scattered."""

    @staticmethod
    def forward(context: Any, shard: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        context.group = group
        return collectives.wait_tensor(
            collectives.all_gather_into_tensor(shard, group.size(), group.group_name),
        )

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        (gradient,), group = grad_outputs, ctx.group
        scattered = collectives.reduce_scatter_tensor(gradient.contiguous(), "sum", group.size(), group.group_name)
        return collectives.wait_tensor(scattered), None


class Copied(torch.autograd.Function):
    """Pass a value to layers that are split over a group. Its gradient is summed over the ranks."""

    @staticmethod
    def forward(context: Any, value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        context.group = group
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _summed(grad_outputs[0], ctx.group), None


class Summed(torch.autograd.Function):
    """Sum the results of layers that are split over a group."""

    @staticmethod
    def forward(_: Any, value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        return _summed(value, group)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad_outputs[0], None


class Exchanged(torch.autograd.Function):
    """Send an equal number of rows to each rank of a group, and receive an equal number. Gradients are sent back."""

    @staticmethod
    def forward(context: Any, rows: torch.Tensor, received: int, group: dist.ProcessGroup) -> torch.Tensor:
        context.group, context.given = group, rows.shape[0]
        return _exchanged(rows, received, group)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _exchanged(grad_outputs[0].contiguous(), ctx.given, ctx.group), None, None


def _summed(value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    if group.size() == 1:
        return value.view_as(value)
    return collectives.wait_tensor(collectives.all_reduce(value.contiguous(), "sum", group.group_name))


def _exchanged(rows: torch.Tensor, received: int, group: dist.ProcessGroup) -> torch.Tensor:
    ranks = group.size()
    taken, given = ([count // ranks] * ranks for count in (received, rows.shape[0]))
    return collectives.wait_tensor(collectives.all_to_all_single(rows, taken, given, group.group_name))


class Weight(nn.Module):
    """A weight with an equal shard on each rank of a group, gathered where it is used."""

    def __init__(self, group: dist.ProcessGroup, *shape: int) -> None:
        super().__init__()
        self.group, self.shape = group, shape
        self.shard = nn.Parameter(torch.empty(torch.Size(shape).numel() // group.size()))

    def forward(self) -> torch.Tensor:
        whole = self.shard if self.group.size() == 1 else Gathered.apply(self.shard, self.group)
        return whole.view(self.shape)


class Linear(nn.Module):
    """A linear layer. Its weight is gathered where it is used."""

    def __init__(self, group: dist.ProcessGroup, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = Weight(group, outputs, inputs)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(value, self.weight())


class Gated(nn.Module):
    """A gated layer: the product of two projections, projected back."""

    def __init__(self, group: dist.ProcessGroup, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = (Linear(group, width, hidden) for _ in range(2))
        self.down = Linear(group, hidden, width)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(value)) * self.up(value))


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Attend by the flash kernel; without a device, PyTorch would choose products with length x length scores."""
    return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, is_causal=True)[0]
