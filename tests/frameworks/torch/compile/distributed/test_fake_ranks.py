"""A tensor-parallel model under an active fake mode: planned and trained without memory and without other ranks."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs

WIDTH = 16


class Block(nn.Module):
    """A residual block of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value + self.down(torch.tanh(self.up(self.norm(value))))


@pytest.fixture(autouse=True)
def two_ranks_that_are_played() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def test_a_tensor_parallel_model_is_planned_and_goes_backward_under_a_fake_mode() -> None:
    """Ops run again, and every parameter gets a fake gradient."""
    torch._dynamo.reset()
    forget_programs()
    mesh = init_device_mesh("cpu", (2,))
    with FakeTensorMode():
        model = nn.Sequential(*(Block() for _ in range(3)))
        for block in model:
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        options = {"compiler": "eager", "budget": "80%", "effort": "fast"}
        torch.compile(model, backend="lowtide", options=options)(torch.randn(256, WIDTH)).pow(2).mean().backward()
    (program,) = planned_programs()
    assert program.result.shortfall is None
    assert program.result.reruns > 0
    assert all(parameter.grad is not None for parameter in model.parameters())
