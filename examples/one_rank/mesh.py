"""Rank 0 among ranks that do not exist, what it sends and gathers, and layers whose weights are sharded."""

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

collectives = torch.ops._c10d_functional


@dataclass(frozen=True)
class Mesh:
    """The groups of rank 0: of those that hold the same part of every layer, of its neighbors, and of all."""

    data: dist.ProcessGroup
    """Ranks with other data and the same part of every split layer."""
    tensor: dist.ProcessGroup
    """Neighbors that hold other parts: of every layer, or other experts."""
    world: dist.ProcessGroup

    @classmethod
    def played(cls, data: int, tensor: int) -> "Mesh":
        """Play rank 0 among data x tensor ranks that do not exist; tensor-parallel ones are neighbors."""
        ranks = data * tensor
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
        groups = [dist.new_group(list(each)) for each in (range(0, ranks, tensor), range(tensor), range(ranks))]
        return cls(*cast("list[dist.ProcessGroup]", groups))


class Gathered(torch.autograd.Function):
    """The whole of a weight of which every rank of a group holds an equal part; its gradient is scattered."""

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
    """What goes into layers that are split over a group; its gradient is summed over the ranks."""

    @staticmethod
    def forward(context: Any, value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        context.group = group
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _summed(grad_outputs[0], ctx.group), None


class Summed(torch.autograd.Function):
    """What comes out of layers that are split over a group, summed over the ranks."""

    @staticmethod
    def forward(_: Any, value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        return _summed(value, group)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad_outputs[0], None


class Exchanged(torch.autograd.Function):
    """Rows of which every rank of a group gets an equal share, for as many from each; gradients travel back."""

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
    """A weight of which this rank keeps an equal part, gathered over a group where it is used."""

    def __init__(self, group: dist.ProcessGroup, *shape: int) -> None:
        super().__init__()
        self.group, self.shape = group, shape
        self.shard = nn.Parameter(torch.empty(torch.Size(shape).numel() // group.size()))

    def forward(self) -> torch.Tensor:
        return Gathered.apply(self.shard, self.group).view(self.shape)


class Linear(nn.Module):
    """A linear layer whose weight is gathered where it is used."""

    def __init__(self, group: dist.ProcessGroup, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = Weight(group, outputs, inputs)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(value, self.weight())


class Gated(nn.Module):
    """A gated layer: two products, one of which decides what passes of the other, and one back."""

    def __init__(self, group: dist.ProcessGroup, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = (Linear(group, width, hidden) for _ in range(2))
        self.down = Linear(group, hidden, width)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(value)) * self.up(value))


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Attend by the flash kernel; without a device, PyTorch would choose products with length x length scores."""
    return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, is_causal=True)[0]
