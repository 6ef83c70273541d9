"""Hooks of optimizers, which no graph calls, are refused whenever they come."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import lowtide.torch as lt
from lowtide.errors import UnsupportedError
from tests.frameworks.torch.training.test_python_state import Net, batches, classify


def do_nothing(*_: Any) -> None: ...


HOOKS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "before": lambda optimizer: optimizer.register_step_pre_hook(do_nothing),
    "after": lambda optimizer: optimizer.register_step_post_hook(do_nothing),
    "before all": lambda _: register_optimizer_step_pre_hook(do_nothing),
    "after all": lambda _: register_optimizer_step_post_hook(do_nothing),
}


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_of_the_update_is_refused_at_capture_and_in_later_calls(name: str) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    (batch,) = batches(1)
    step = lt.training_step(model, classify, optimizer, batch, effort="fast")
    step(*batch)
    handle = HOOKS[name](optimizer)
    try:
        with pytest.raises(UnsupportedError, match="SGD has step hooks; use before_update"):
            step(*batch)
        with pytest.raises(UnsupportedError, match="SGD has step hooks; use before_update"):
            lt.training_step(model, classify, optimizer, batch, effort="fast")
    finally:
        handle.remove()
    step(*batch)
