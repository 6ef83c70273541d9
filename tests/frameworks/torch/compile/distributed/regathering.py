"""A step on shards of weights: every use gathers them, every gradient is scattered, as fully sharded training does."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import lowtide
from lowtide.torch import TorchModel

WIDTH, TOKENS = 256, 512
TRIES = 12
"""Steps that are measured for the least peak: gloo's threads let go of a collective's tensors some time after it has
ended, which only ever adds to one."""
collectives = torch.ops._c10d_functional


class Gather(torch.autograd.Function):
    """The whole of a tensor of which every rank has some rows."""

    @staticmethod
    def forward(_: Any, shard: torch.Tensor) -> torch.Tensor:
        group = dist.group.WORLD
        return collectives.wait_tensor(
            collectives.all_gather_into_tensor(shard, group.size(), group.group_name),
        )

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        group = dist.group.WORLD
        return collectives.wait_tensor(
            collectives.reduce_scatter_tensor(gradient.contiguous(), "sum", group.size(), group.group_name),
        )


class Block(nn.Module):
    """A residual block of two layers, whose weights are gathered where they are used."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(4 * WIDTH // ranks, WIDTH) / 8)
        self.down = nn.Parameter(torch.randn(WIDTH // ranks, 4 * WIDTH) / 16)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value + torch.tanh(value @ Gather.apply(self.up).t()) @ Gather.apply(self.down).t()


class Loss(nn.Module):
    """Blocks and a loss."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(ranks) for _ in range(4)))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.blocks(value).pow(2).mean()


def regathered() -> dict[str, Any]:
    """Run a step within a budget that needs weights to be gathered again; returns what was predicted and measured."""
    torch.manual_seed(dist.get_rank())
    model = TorchModel((Loss(dist.get_world_size()), (torch.randn(TOKENS, WIDTH),)))
    graph = model.graph
    result = lowtide.minimize(graph, budget="55%", allow=["reorder", "share", "recompute"], effort="fast")
    runs = [graph.op_names[op] for op in result.plan.order().tolist() if graph.ranks[op] > 1]
    predicted = sum(result.peak_bytes.values())
    measured = [model.measure(result.plan) for _ in range(TRIES)]
    return {
        "runs": runs,
        "in the program": [name for name, ranks in zip(graph.op_names, graph.ranks, strict=True) if ranks > 1],
        "fits": result.shortfall is None,
        "outputs equal": all(each.outputs_equal for each in measured),
        "measured over predicted": min(each.after_bytes for each in measured) / predicted,
    }
