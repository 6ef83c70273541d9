"""Parameters in bfloat16 with master weights and moments in float32, which are state like any other."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import lowtide.torch as lt
from examples.master_weights import MasterAdamW
from lowtide.core.errors import UsageError
from lowtide.frameworks.torch.internals.host_memory import cpu_host

WIDTH = 64


def _made(of: Callable[[Any], torch.optim.Optimizer] = MasterAdamW) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    layers = (part for _ in range(4) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh()))
    model = nn.Sequential(*layers).to(torch.bfloat16)
    return model, of(model.parameters())


def _batch(seed: int = 0) -> torch.Tensor:
    return torch.randn(16, WIDTH, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def _loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).float().pow(2).mean()


def _planned(model: nn.Module, optimizer: torch.optim.Optimizer, **more: Any) -> lt.PlannedStep:
    """Return a step for a budget of 5 times the parameters; with state of 6 times their bytes."""
    held = sum(parameter.nbytes for parameter in model.parameters())
    allow = ("reorder", "share", "recompute", "offload")
    return lt.training_step(
        model, _loss, optimizer, (_batch(),), budget=f"{5 * held}B", allow=allow, host_bandwidth="25 GB/s", **more
    )


@pytest.mark.share_of_cases
@pytest.mark.parametrize("more", [{}, {"clip_grad_norm": 0.01}, {"accumulate": 2}], ids=["plain", "clip", "accumulate"])
def test_master_weights_live_on_the_host_and_keep_their_bits(
    more: dict[str, Any], digest: Callable[[Any], str]
) -> None:
    """They start as the parameters. Losses, parameters and all state equal those of the plain loop."""
    traces: list[list[str]] = []
    for planned in (True, False):
        model, optimizer = _made()
        step: Any = _planned(model, optimizer, effort="fast", **more)
        run = step if planned else step.step
        schedule = lr_scheduler.StepLR(optimizer, 2, 0.5)
        found: list[str] = []
        for number in range(4):
            loss = run(_batch(number))
            schedule.step()
            found.append(digest([loss, model.state_dict(), optimizer.state_dict()]))
        traces.append(found)
        assert planned == any(cpu_host.holds(state["master"]) for state in optimizer.state.values())
    assert traces[0] == traces[1]


class _StartsAsGradient(torch.optim.Optimizer):
    """Momentum that starts as the first gradient."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            if not state:
                state["velocity"] = parameter.grad.clone()
            state["velocity"].mul_(0.9).add_(parameter.grad)
            parameter.sub_(state["velocity"], alpha=0.1)


def test_state_that_starts_as_a_gradient_is_refused_with_a_way_out() -> None:
    model, optimizer = _made(_StartsAsGradient)
    with pytest.raises(UsageError, match="state 'velocity' of _StartsAsGradient is not known; run one ordinary step"):
        lt.training_step(model, _loss, optimizer, (_batch(),))(_batch())
