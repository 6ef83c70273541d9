"""Counters are the variables that code only increments, so that a planned step need not read them."""

import types
from typing import Any

import torch
from torch import nn

import lowtide.torch as lt
from lowtide.frameworks.torch.capture.state.counters import counter_names

TOTAL = 0


def code_of(function: Any) -> types.CodeType:
    return function.__code__


def counting(self: Any) -> None:
    global TOTAL
    self.calls += 1
    TOTAL += 2


def comparing(self: Any) -> bool:
    self.steps += 1
    return self.steps > 5


def naming(self: Any) -> int:
    return getattr(self, "calls")  # noqa: B009


def scaling(self: Any) -> None:
    self.scale += 0.1
    self.calls *= 2


def nested(self: Any) -> Any:
    count = 0

    def inner() -> None:
        nonlocal count
        count += 1

    return inner


def test_a_variable_is_a_counter_unless_code_reads_it() -> None:
    assert counter_names((code_of(counting),)) == {"calls", "TOTAL"}
    assert counter_names((code_of(comparing),)) == set()
    assert counter_names((code_of(counting), code_of(naming))) == {"TOTAL"}
    assert counter_names((code_of(counting), code_of(scaling))) == {"TOTAL"}
    assert counter_names((code_of(nested(None)),)) == {"count"}


class Net(nn.Module):
    """A layer that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.calls = 0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layer(rows).square().mean()


def test_a_step_that_only_counts_is_not_rehearsed() -> None:
    model = Net()
    step = lt.training_step(model, None, torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(2, 3))
    state = step.step.python.state
    for _ in range(3):
        step(torch.ones(2, 3))
    assert step.step.python.state is state
    assert model.calls == 3
