"""Plans of kernels for programs that overwrite their inputs: nothing is overwritten twice, nothing read too late."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs
from lowtide.torch import measure

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
"""The warnings are Inductor's own; lowtide's still end a test."""
N_STEPS = 2


class Residual(nn.Module):
    """Residual blocks of convolutions and BatchNorm, half of them over single channels."""

    def __init__(self, width: int = 8, n_blocks: int = 1) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        parts = (self._block(width, groups) for _ in range(n_blocks) for groups in (1, width))
        self.blocks = nn.ModuleList(parts)
        self.head = nn.Linear(width, 10)

    @staticmethod
    def _block(width: int, groups: int) -> nn.Module:
        convolution = nn.Conv2d(width, width, 3, padding=1, groups=groups, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 1))

    def forward(self, images: Tensor) -> Tensor:
        value = self.stem(images)
        for block in self.blocks:
            value = value + block(value)
        return self.head(value.mean((2, 3))).square().mean()


class Scaled(nn.Module):
    """Layers scaled by a buffer that the program overwrites after it read it, and by its new contents."""

    scale: Tensor
    shift: Tensor

    def __init__(self, width: int = 64, n_layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(n_layers))
        self.register_buffer("scale", torch.linspace(1, 2, width))
        self.register_buffer("shift", torch.zeros(width))

    def forward(self, value: Tensor) -> Tensor:
        for layer in self.layers:
            value = torch.tanh(layer(value) * self.scale.clone() + self.shift)
            self.scale.mul_(1.25)
            self.shift.add_(0.1 * value.detach().mean(0))
        return value.square().mean()


def _train(module: nn.Module, run: Any, batch: Tensor) -> list[Tensor]:
    """Return all gradients and buffers of some steps."""
    found: list[Tensor] = []
    for _ in range(N_STEPS):
        module.zero_grad()
        run(batch).backward()
        found += [each.grad.clone() for each in module.parameters() if each.grad is not None]
        found += [each.clone() for each in module.buffers()]
    return found


@pytest.mark.parametrize(
    ("kind", "shape", "budget"),
    [(Residual, (4, 3, 24, 24), "85%"), (Scaled, (512, 64), "85%")],
    ids=["norm", "buffers"],
)
def test_gradients_and_buffers_of_several_steps_equal_those_of_eager(
    kind: type[nn.Module], shape: tuple[int, ...], budget: str
) -> None:
    """The plan recomputes kernels, and the measured peak is the predicted one."""
    torch.manual_seed(0)
    module, batch = kind().train(), torch.randn(shape)
    before = deepcopy(module.state_dict())
    expected = _train(module, module, batch)
    module.load_state_dict(before)
    forget_programs()
    run = torch.compile(module, backend="lowtide", options={"budget": budget}, dynamic=False)
    found = _train(module, run, batch)
    (program,) = planned_programs()
    assert "turn" in program.graph.op_kinds
    assert program.result.reruns
    assert program.result.shortfall is None
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    measured = measure(lambda: run(batch).backward(), state=[module])
    predicted = program.predicted_peak_bytes["cpu"]
    assert measured.measured_peak_bytes <= 1.02 * predicted <= 1.02 * (program.result.budget.allowed["cpu"] or 0)
