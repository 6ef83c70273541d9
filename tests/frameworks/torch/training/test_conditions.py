"""Python conditions on values of the batch, of buffers and of masks are decided as in the plain step."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import lowtide.torch as lt
from lowtide.core.errors import UnsupportedError


def test_a_condition_on_computed_values_is_refused_with_its_line() -> None:
    def loss(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        value = model(rows)
        if value.max() >= 100:
            raise ValueError("too large")
        return value.mean()

    model = nn.Linear(6, 6)
    with pytest.raises(UnsupportedError, match=r"a number from a tensor \(test_conditions.py:\d+\).*too large"):
        lt.training_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(8, 6))


class Scaled(nn.Module):
    """A layer whose scale depends on the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.limits = nn.Buffer(torch.tensor([1.0, 2.0]))

    def forward(self, rows: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        value = self.layer(rows)
        if bool((kinds > self.limits).all()):
            value = value * 2
        return value.square().mean()


def test_a_condition_on_the_batch_is_decided_in_every_call(digest: Callable[[Any], str]) -> None:
    rows = torch.randn(8, 6)
    kinds = [torch.tensor(each) for each in ((3.0, 3.0), (0.0, 3.0), (5.0, 4.0), (9.0, 0.0))]

    def run(call: Callable[..., Any], model: nn.Module) -> list[str]:
        return [digest([call(rows, each), model.state_dict()]) for each in (*kinds, *kinds)]

    torch.manual_seed(0)
    plain, planned = Scaled(), Scaled()
    planned.load_state_dict(plain.state_dict())
    eager = lt.TrainingStep(plain, None, torch.optim.SGD(plain.parameters(), lr=0.1))
    step = lt.training_step(planned, None, torch.optim.SGD(planned.parameters(), lr=0.1), (rows, kinds[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run(step, planned) == run(eager, plain)


class CountingValues(nn.Module):
    """A layer that counts the values of its batches in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.count = nn.Linear(6, 6), 0

    def forward(self, rows: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        self.count += int(kinds.sum())
        return self.layer(rows).mean()


def test_a_python_number_computed_from_the_batch_is_refused() -> None:
    model = CountingValues()
    batch = torch.randn(8, 6), torch.tensor([1, 2])
    with pytest.raises(UnsupportedError, match=r"count.*may depend on a number that it reads from a tensor"):
        lt.training_step(model, None, torch.optim.SGD(model.parameters(), lr=0.1), batch)


class Masked(nn.Module):
    """An encoder and a decoder with causal masks: one is made in each call, one is a buffer, or both are given."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), 2)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, 0.0, batch_first=True), 1)
        self.mask = nn.Buffer(nn.Transformer.generate_square_subsequent_mask(5))

    def forward(self, rows: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        own = nn.Transformer.generate_square_subsequent_mask(5) if mask is None else mask
        memory = self.encoder(rows, self.mask if mask is None else mask)
        return self.decoder(rows, memory, own).square().mean()


@pytest.mark.parametrize("is_given", [False, True])
def test_masks_of_transformers_decide_which_attention_they_compute(
    is_given: bool, digest: Callable[[Any], str]
) -> None:
    batch: tuple[torch.Tensor, ...] = (torch.randn(3, 5, 16),)
    if is_given:
        batch = (*batch, nn.Transformer.generate_square_subsequent_mask(5))
    torch.manual_seed(0)
    plain, planned = Masked(), Masked()
    planned.load_state_dict(plain.state_dict())
    eager = lt.TrainingStep(plain, None, torch.optim.SGD(plain.parameters(), lr=0.1))
    step = lt.training_step(planned, None, torch.optim.SGD(planned.parameters(), lr=0.1), batch, budget="80%")
    for _ in range(2):
        assert digest([step(*batch), planned.state_dict()]) == digest([eager(*batch), plain.state_dict()])


class Smoothed(nn.Module):
    """A loss with one-hot labels of many classes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2**17)

    def forward(self, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        wanted = nn.functional.one_hot(labels, 2**17)
        return (wanted * nn.functional.log_softmax(self.layer(rows), 1)).mean()


def test_large_values_computed_from_the_batch_are_not_computed_while_capturing() -> None:
    batch, model = (torch.randn(16, 4), torch.randint(2**17, (16,))), Smoothed()
    step = lt.TrainingStep(model, None, torch.optim.SGD(model.parameters(), lr=0.1))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiled:
        lt.capture((step, batch))
    assert max(event.cpu_memory_usage for event in profiled.events()) < 2**23
