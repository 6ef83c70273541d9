"""Training through `torch.compile(backend="lowtide")` with the eager compiler: the same bits in less memory."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs

STEPS = 3
BUDGETS = (None, "80%", "60%")


class Perceptron(nn.Module):
    """Layers of one width with dropout in between, and the loss."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(8):
            layers += [nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.3)]
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs).pow(2).mean()


class Convolutions(nn.Module):
    """Convolutions with batch norms, in-place activations, dropout, and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Dropout2d(0.2))
            for _ in range(4)
        )
        self.last = nn.Sequential(nn.Dropout(0.1), nn.Flatten(), nn.Linear(16 * 12 * 12, 10))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        value = self.first(inputs)
        for block in self.blocks:
            value = value + block(value)
        return self.last(value).logsumexp(1).mean()


class Attention(nn.Module):
    """Two transformer layers with dropout and tied weights."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.embedding = nn.Embedding(50, 32)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.layers(self.embedding(tokens)))
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def _batch(model: nn.Module) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    if isinstance(model, Attention):
        return torch.randint(0, 50, (4, 24), generator=generator)
    shape = (256, 64) if isinstance(model, Perceptron) else (8, 3, 12, 12)
    return torch.randn(shape, generator=generator)


def _train(model: nn.Module, run: Callable[..., Any]) -> list[Any]:
    """Train some steps; returns losses, and at the end all parameters, gradients, buffers and the random state."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batch = _batch(model)
    torch.manual_seed(11)
    losses: list[torch.Tensor] = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = run(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    gradients = [parameter.grad for parameter in model.parameters()]
    return [losses, list(model.parameters()), gradients, list(model.buffers()), torch.get_rng_state()]


@pytest.fixture(name="model", params=[Perceptron, Convolutions, Attention], ids=lambda kind: kind.__name__)
def model_fixture(request: pytest.FixtureRequest) -> nn.Module:
    """Give a model with random weights, ready to train."""
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    forget_programs()
    torch.manual_seed(3)
    return request.param().train()


@pytest.mark.share_of_cases
@pytest.mark.parametrize("budget", BUDGETS)
def test_training_is_bit_equal_to_eager(model: nn.Module, budget: str | None, digest: Callable[[Any], str]) -> None:
    """Losses, parameters, gradients, running statistics and the random state do not depend on the plan."""
    twin = copy.deepcopy(model)
    options = {"compiler": "eager", "budget": budget}
    planned = _train(twin, torch.compile(twin, backend="lowtide", options=options))
    assert digest(planned) == digest(_train(model, model))
    (program,) = planned_programs()
    if budget == "80%":
        assert program.result.reruns > 0
        assert program.result.shortfall is None


@pytest.mark.share_of_cases
@pytest.mark.parametrize("budget", [None, "80%"])
def test_the_peak_of_a_real_step_is_the_predicted_one(model: nn.Module, budget: str | None) -> None:
    """Live tensor bytes of forward and backward pass, measured, within two percent of what the plan says."""
    compiled = torch.compile(model, backend="lowtide", options={"compiler": "eager", "budget": budget})
    batch = _batch(model)

    def step() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        compiled(batch).backward()

    for _ in range(3):
        step()
    for parameter in model.parameters():
        parameter.grad = None
    measured, _ = peak_of_call(step, torch.device("cpu"))
    (program,) = planned_programs()
    predicted = program.result.peak_bytes["cpu"]
    assert measured + batch.nbytes == pytest.approx(predicted, rel=0.02)
