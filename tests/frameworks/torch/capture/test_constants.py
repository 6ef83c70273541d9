"""Tensors that are neither parameters nor arguments: plans read them and never write them."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import lowtide
import lowtide.torch as lt
from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.torch.planning.programs import forget_programs

CLASSES, WIDTH = 5003, 64


class Model(nn.Module):
    """A language model with plain attributes for targets and mask, read only through views."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, CLASSES, bias=False)
        self.targets = torch.randint(0, CLASSES, (4, 64))
        self.mask = torch.rand(1, 64, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        value = torch.tanh(self.tokens(tokens) * self.mask[:, :64]) + self.mask.view(64, WIDTH)
        return functional.cross_entropy(self.head(value).flatten(0, 1), self.targets.flatten())


@pytest.fixture(name="model")
def model_fixture() -> Model:
    """Return the same model every time."""
    torch.manual_seed(0)
    return Model()


@pytest.fixture(name="tokens")
def tokens_fixture() -> torch.Tensor:
    """Return the same batch every time."""
    return torch.randint(0, CLASSES, (4, 64), generator=torch.Generator().manual_seed(0))


def _trained(model: Model, step: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
    """Return three losses and the tensors of the model after them."""
    losses = [step().detach().clone() for _ in range(3)]
    return [*losses, *(each.detach().clone() for each in (*model.parameters(), model.targets, model.mask))]


def _trained_by(run: Callable[[torch.Tensor], torch.Tensor], model: Model, tokens: torch.Tensor) -> list[torch.Tensor]:
    """Train a model in a plain loop."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = run(tokens)
        loss.backward()
        optimizer.step()
        return loss

    return _trained(model, step)


def _eager(tokens: torch.Tensor) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = Model()
    return _trained_by(model, model, tokens)


@pytest.mark.parametrize("budget", [None, "60%"])
def test_a_planned_step_reads_them_anew_every_time(model: Model, tokens: torch.Tensor, budget: str | None) -> None:
    """Losses, parameters and constants are bit-equal to a plain loop, also in chunks."""
    step = lt.training_step(model, None, torch.optim.SGD(model.parameters(), lr=0.1), (tokens,), budget=budget)
    assert "chunks" in str(step.result)
    assert all(map(torch.equal, _trained(model, lambda: step(tokens)), _eager(tokens)))


def test_the_backend_reads_them_anew_every_time(model: Model, tokens: torch.Tensor) -> None:
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    forget_programs()
    run = torch.compile(model, backend="lowtide", options={"compiler": "eager", "budget": "70%"})
    assert all(map(torch.equal, _trained_by(run, model, tokens), _eager(tokens)))


def test_a_view_of_one_is_not_memory_that_may_be_reused() -> None:
    """A tensor read directly and through a view is one persistent buffer."""
    held = torch.randn(64, 64)

    def function(value: torch.Tensor) -> torch.Tensor:
        return torch.relu(value + held.view(4096).view(64, 64)) * (held.t() + 1)

    model = lt.TorchModel((function, (torch.randn(64, 64),)))
    graph = model.graph
    held_bytes = graph.persistent_bytes()[graph.spaces[0].name]
    assert held_bytes == held.nbytes
    plan = lowtide.minimize(model).plan
    before, value = held.clone(), torch.randn(64, 64)
    planned = model.apply(plan)
    assert all(torch.equal(planned(value), function(value)) for _ in range(2))
    assert torch.equal(held, before)


class Counting(nn.Module):
    """A model that counts its calls in a tensor, as attribute or buffer."""

    def __init__(self, *, is_buffer: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        if is_buffer:
            self.register_buffer("calls", torch.zeros(()))
        else:
            self.calls = torch.zeros(())

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return (self.layer(value) * self.calls).square().mean()


def test_one_of_a_single_element_that_is_written_into_is_refused() -> None:
    """Tracing would count its own calls. A buffer is an input and counts only the step's calls."""
    value = torch.randn(8, WIDTH)
    plain, held = Counting(is_buffer=False), Counting(is_buffer=True)
    with pytest.raises(UnsupportedError, match="make it a buffer of the module or pass it as an argument"):
        lt.training_step(plain, None, torch.optim.SGD(plain.parameters(), lr=0.1), (value,))
    step = lt.training_step(held, None, torch.optim.SGD(held.parameters(), lr=0.1), (value,))
    for _ in range(3):
        step(value)
    assert held.calls.item() == 3
