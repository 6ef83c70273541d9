"""Models with DTensor parameters are captured on fake tensors as one rank's program with its collectives."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.testing._internal.distributed.fake_pg import FakeStore

import lowtide
from lowtide.torch import TrainingStep

WIDTH, RANKS = 64, 8


class Block(nn.Module):
    """A residual block of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value + self.down(torch.tanh(self.up(value)))


class Net(nn.Module):
    """Blocks and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(3)))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.blocks(value).pow(2).mean()


class GatheredLinear(nn.Linear):
    """A linear layer with a sharded weight, gathered at its use, as in SimpleFSDP."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        shard: Any = self._parameters["weight"]
        whole = shard.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial("avg")])
        return nn.functional.linear(value, whole)


@pytest.fixture(autouse=True)
def ranks_that_are_played() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    yield
    dist.destroy_process_group()


def tensor_parallel(net: Net, mesh: DeviceMesh) -> None:
    """Split the two layers of every block over the ranks."""
    for block in net.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def fully_sharded(net: Net, mesh: DeviceMesh) -> None:
    """Shard every weight by rows."""
    for block in net.blocks:
        for layer in (block.up, block.down):
            layer.__class__ = GatheredLinear
            layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), mesh, [Shard(0)]))


@pytest.mark.parametrize("with_symbols", [True, False], ids=["symbols", "no symbols"])
@pytest.mark.parametrize("way", [tensor_parallel, fully_sharded])
def test_a_step_of_one_rank_holds_its_parts_and_its_collectives(
    way: Callable[[Net, DeviceMesh], None], with_symbols: bool
) -> None:
    """Parameters and their state need an eighth. Under a budget, gathered weights are gathered again."""
    mesh = init_device_mesh("cpu", (RANKS,))
    with FakeTensorMode(shape_env=ShapeEnv() if with_symbols else None, allow_non_fake_inputs=True):
        net = Net()
        way(net, mesh)
        batch = torch.randn(16, WIDTH)
    step = TrainingStep(net, None, torch.optim.AdamW(net.parameters(), fused=True))
    graph = lowtide.read((step, (batch,)))
    weights = 3 * 2 * 4 * WIDTH * WIDTH * 4 // RANKS
    assert sum(graph.persistent_bytes().values()) == pytest.approx(3 * weights, rel=0.01)
    kinds = [kind.split(".")[-1] for kind, ranks in zip(graph.op_kinds, graph.ranks, strict=True) if ranks == RANKS]
    if way is tensor_parallel:
        assert kinds.count("all_reduce") >= 3
        return
    assert (kinds.count("all_gather_into_tensor"), kinds.count("reduce_scatter_tensor")) == (6, 6)
    result = lowtide.minimize(
        graph, budget="60%", allow=["reorder", "share", "recompute"], effort="fast", costs="eager@h100"
    )
    assert result.shortfall is None
    runs = result.plan.order()
    assert (graph.ranks[runs] > 1).sum() > len(kinds)
