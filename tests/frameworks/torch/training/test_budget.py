"""Ops of a step run again within a budget, whatever batch normalization, dropout and in-place code stand around."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import lowtide.torch as lt

N_STEPS = 3


class Residual(nn.Module):
    """Two convolutions with batch normalization around a shortcut, activations in place."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        summed = self.body(images)
        summed += self.shortcut(images)
        return torch.relu_(summed)


def residual_net() -> nn.Module:
    """Return a small residual network as people write it."""
    blocks = [*(Residual(16, 16, 1) for _ in range(4)), Residual(16, 32, 2), Residual(32, 32, 1)]
    stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(32, 5))


class Shared(nn.Module):
    """One batch normalization used twice, its statistics a cumulative average."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16, momentum=None)
        self.head = nn.Linear(16, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        once = nn.functional.silu(self.norm(self.first(images)))
        twice = nn.functional.silu(self.norm(self.second(once)))
        return self.head(twice.mean((2, 3)))


def mixer() -> nn.Module:
    """Return layers of dropout, in-place activations and normalization over features."""
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(3 * 16 * 16, 32)]
    for _ in range(3):
        layers += [nn.Linear(32, 256), nn.GELU(), nn.Dropout(0.3, inplace=True), nn.Linear(256, 32), nn.LayerNorm(32)]
    return nn.Sequential(*layers, nn.Hardswish(inplace=True), nn.Linear(32, 5))


def classify(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy over classes."""
    return nn.functional.cross_entropy(model(images), labels)


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch of images and labels."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(16, 3, 16, 16, generator=generator), torch.randint(0, 5, (16,), generator=generator)


def make(build: Callable[[], nn.Module]) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model with fixed random weights and its optimizer."""
    torch.manual_seed(2)
    model = build().train()
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


@pytest.mark.share_of_cases
@pytest.mark.parametrize(
    ("build", "budget"), [(residual_net, "70%"), (residual_net, "50%"), (Shared, "80%"), (mixer, "60%")]
)
def test_what_runs_again_changes_no_bit_and_the_peak_is_the_predicted_one(
    build: Callable[[], nn.Module], budget: str, digest: Callable[[Any], str]
) -> None:
    def run(step: Callable[..., Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
        torch.manual_seed(4)
        return [
            digest([step(*batch(seed)), model.state_dict(), optimizer.state_dict(), torch.get_rng_state()])
            for seed in range(N_STEPS)
        ]

    model, optimizer = make(build)
    expected = run(lt.TrainingStep(model, classify, optimizer), model, optimizer)
    model, optimizer = make(build)
    step = lt.training_step(model, classify, optimizer, batch(0), budget=budget)
    assert step.result.reruns > 0
    predicted, baseline = step.result.peak_bytes["cpu"], step.result.baseline_peak_bytes["cpu"]
    assert predicted <= float(budget[:-1]) / 100 * baseline
    measured = step.measure()
    assert measured.outputs_equal
    assert abs(measured.before_bytes - baseline) <= 0.02 * baseline
    assert abs(measured.after_bytes - predicted) <= 0.02 * predicted
    assert run(step, model, optimizer) == expected
