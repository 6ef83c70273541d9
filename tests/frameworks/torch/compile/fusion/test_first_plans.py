"""Plans that know what Inductor will make of a program: the first one fits once it is compiled."""

import logging
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs
from lowtide.frameworks.torch.planning.read_program import scratch_under_inductor
from lowtide.frameworks.torch.reading.scratch import scratch_bytes
from tests.frameworks.torch.reading.measured_scratch import SCALARS, measured_scratch, one_thread

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
"""The warnings are Inductor's own; lowtide's still end a test."""


class BothSides(nn.Module):
    """A U-Net of one level, and the loss: the input of the level is joined with its enlarged result."""

    def __init__(self) -> None:
        super().__init__()
        channels = (16, 64)
        self.first = nn.Conv2d(3, channels[0], 3, padding=1)
        self.down = nn.ModuleList(map(self._block, channels, channels[1:]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(wide, few, 2, stride=2) for few, wide in pairwise(channels))
        self.joined = nn.ModuleList(self._block(2 * few, few) for few in channels[:-1])

    @staticmethod
    def _block(given: int, made: int) -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(given, made, 3, padding=1), nn.BatchNorm2d(made), nn.ReLU()),
            *(nn.Conv2d(made, made, 3, padding=1), nn.BatchNorm2d(made), nn.ReLU()),
        )

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = self.first(value)
        passed: list[torch.Tensor] = []
        for block in self.down:
            passed.append(value)
            value = block(nn.functional.max_pool2d(value, 2))
        for up, block, beside in zip(reversed(self.up), reversed(self.joined), reversed(passed), strict=True):
            value = block(torch.cat([beside, up(value)], 1))
        return value.square().mean()


def test_where_two_sides_are_joined_a_plan_of_kernels_fits_without_one_of_ops(caplog: pytest.LogCaptureFixture) -> None:
    """The log shows no plan of ops; Inductor's own compilation and the kernels are read without a budget."""
    forget_programs()
    caplog.set_level(logging.INFO, "lowtide")
    torch.manual_seed(0)
    module, batch = BothSides().train(), torch.randn(4, 3, 64, 64)
    torch.compile(module, backend="lowtide", options={"budget": "60%"})(batch).backward()
    (program,) = planned_programs()
    assert program.result.reruns
    assert max(program.kernel_peaks) <= (program.result.budget.allowed["cpu"] or 0)
    assert "turn" in program.graph.op_kinds
    assert not any("ops recomputed" in message and ", 0 ops" not in message for message in caplog.messages)


def _backward_of(dtype: torch.dtype) -> tuple[GraphModule, Node]:
    def step(image: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = torch.ops.aten.convolution.default(image.sin(), weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        given = (made.cos(), image.sin(), weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])
        return torch.ops.aten.convolution_backward.default(*given)

    image, weight = torch.zeros(2, 32, 8, 8, dtype=dtype), torch.zeros(64, 32, 3, 3, dtype=dtype)
    module = make_fx(step, tracing_mode="fake")(image, weight)
    (node,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution_backward.default)
    return module, node


def test_a_convolution_takes_a_copy_of_its_weight_where_channels_stand_together() -> None:
    module, node = _backward_of(torch.float32)
    weight = 64 * 32 * 3 * 3 * torch.float32.itemsize
    assert scratch_under_inductor(module)(node) >= scratch_bytes(node) + weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_convolution_of_channels_last_images_is_predicted_with_the_copy_of_its_weight(dtype: torch.dtype) -> None:
    module, node = _backward_of(dtype)
    given: Any = node.args
    operands = [torch.rand(each.meta["val"].shape, dtype=dtype) for each in given[:3]]
    last = [each.contiguous(memory_format=torch.channels_last) for each in operands[:2]]
    call = (*last, operands[2], *given[3:])
    with one_thread():
        measured = measured_scratch(lambda: torch.ops.aten.convolution_backward.default(*call))
        assert measured <= scratch_under_inductor(module)(node) + SCALARS


def test_a_program_without_convolutions_takes_what_it_takes_anywhere() -> None:
    module = make_fx(lambda value: value.softmax(1), tracing_mode="fake")(torch.zeros(4, 4))
    assert scratch_under_inductor(module) is scratch_bytes
