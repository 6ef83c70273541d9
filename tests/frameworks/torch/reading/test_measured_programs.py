"""Steps whose kernels allocate in unusual ways need the predicted memory."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import lowtide
import lowtide.torch as lt
from lowtide.engine.plan import Plan


class Folding(nn.Module):
    """An image of overlapping blocks, whose storage has the size of all blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        blocks = functional.unfold(self.first(images), 3, padding=1)
        return functional.fold(2 * blocks, images.shape[-2:], 3, padding=1)


class Bags(nn.Module):
    """Maxima of bags of embeddings; the kernels allocate for bags that are not empty."""

    def __init__(self) -> None:
        super().__init__()
        self.bags, self.last = nn.EmbeddingBag(500, 32, mode="max"), nn.Linear(32, 32)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.last(self.bags(words))


class Spectrum(nn.Module):
    """Absolute values of complex numbers, which kernels compute as complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(self.first(rows), dim=1).abs()


def seeded(make: Callable[[], nn.Module], *shape: int) -> Callable[[], tuple[nn.Module, torch.Tensor]]:
    return lambda: (make(), torch.randn(shape))


PROGRAMS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "blocks": seeded(Folding, 2, 3, 20, 20),
    "bags": lambda: (Bags(), torch.randint(0, 500, (16, 10))),
    "videos": seeded(lambda: nn.Sequential(nn.Conv3d(4, 8, 3, padding=1), nn.Conv3d(8, 8, 3)), 2, 4, 10, 16, 16),
    "transposed": seeded(
        lambda: nn.Sequential(
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1)
        ),
        *(4, 8, 32, 32),
    ),
    "complex": seeded(Spectrum, 8, 128, 32),
}


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).square().mean()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_step_needs_the_predicted_memory(name: str) -> None:
    torch.manual_seed(0)
    module, batch = PROGRAMS[name]()
    optimizer: Any = torch.optim.SGD(module.parameters(), lr=0.1)
    model = lowtide.open_model((lt.TrainingStep(module, loss, optimizer), (batch,)))
    predicted = lowtide.minimize(model.graph, effort="fast").baseline_peak_bytes["cpu"]
    measured = model.measure(Plan.baseline(model.graph), timed_calls=1)
    assert measured.before_bytes == pytest.approx(predicted, rel=0.02)
