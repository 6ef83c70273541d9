"""Every optimizer of torch.optim takes part in a planned step as if nothing had happened: schedules, state dicts."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import lowtide.torch as lt
from lowtide.core.errors import UnsupportedError

o = torch.optim
N_STEPS = 7

Optimizers: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: o.SGD(p, lr=0.1),
    "sgd-nesterov": lambda p: o.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "sgd-foreach": lambda p: o.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "sgd-fused": lambda p: o.SGD(p, lr=0.1, momentum=0.9, fused=True, weight_decay=0.1),
    "adam": lambda p: o.Adam(p, weight_decay=0.1, amsgrad=True),
    "adam-foreach": lambda p: o.Adam(p, foreach=True),
    "adam-fused": lambda p: o.Adam(p, fused=True, amsgrad=True),
    "adamw": lambda p: o.AdamW(p),
    "adamw-foreach": lambda p: o.AdamW(p, foreach=True, maximize=True),
    "adamw-fused": lambda p: o.AdamW(p, fused=True, weight_decay=0.0),
    "adamw-fused-tensor-lr": lambda p: o.AdamW(p, lr=torch.tensor(1e-2), fused=True),
    "adagrad": lambda p: o.Adagrad(p, lr_decay=0.1, initial_accumulator_value=0.1),
    "adagrad-foreach": lambda p: o.Adagrad(p, foreach=True),
    "adagrad-fused": lambda p: o.Adagrad(p, fused=True),
    "rmsprop": lambda p: o.RMSprop(p, momentum=0.5, centered=True),
    "rmsprop-foreach": lambda p: o.RMSprop(p, foreach=True),
    "adadelta": lambda p: o.Adadelta(p),
    "adadelta-foreach": lambda p: o.Adadelta(p, foreach=True),
    "adamax": lambda p: o.Adamax(p),
    "adamax-foreach": lambda p: o.Adamax(p, foreach=True),
    "nadam": lambda p: o.NAdam(p, weight_decay=0.1, decoupled_weight_decay=True),
    "nadam-foreach": lambda p: o.NAdam(p, foreach=True),
    "radam": lambda p: o.RAdam(p),
    "radam-foreach": lambda p: o.RAdam(p, foreach=True, weight_decay=0.1),
    "asgd": lambda p: o.ASGD(p, lr=0.1, t0=2),
    "asgd-foreach": lambda p: o.ASGD(p, foreach=True, t0=2),
    "rprop": lambda p: o.Rprop(p),
    "rprop-foreach": lambda p: o.Rprop(p, foreach=True),
    "adafactor": lambda p: o.Adafactor(p),
    "adafactor-foreach": lambda p: o.Adafactor(p, foreach=True),
}
BRANCHING = {"radam", "radam-foreach", "asgd"}
"""These run another program once their step count has passed a threshold."""

Schedules: dict[str, Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]] = {
    "step": lambda optimizer: lr_scheduler.StepLR(optimizer, 2, 0.5),
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (epoch + 1)),
    "one-cycle": lambda optimizer: lr_scheduler.OneCycleLR(
        optimizer, 0.1, total_steps=N_STEPS + 1, cycle_momentum="betas" in optimizer.defaults
    ),
}


def classify(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy over classes."""
    return nn.functional.cross_entropy(model(inputs), labels)


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the same few batches every time."""
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.randn(6, 12, generator=generator), torch.randint(0, 5, (6,), generator=generator))
        for _ in range(N_STEPS)
    ]


def make(name: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model with dropout and its optimizer, two groups of different weight decay."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 5)).train()
    optimizer = Optimizers[name]([{"params": list(model[0].parameters())}, {"params": list(model[3].parameters())}])
    if isinstance(optimizer.param_groups[1]["lr"], float):
        optimizer.param_groups[1]["lr"] /= 2
    return model, optimizer


class Run:
    """Training, plain or planned, with a schedule; notes the bits of everything after every step."""

    def __init__(self, name: str, schedule: str, planned: bool, digest: Callable[[Any], str]) -> None:
        self.model, self.optimizer = make(name)
        self.scheduler = Schedules[schedule](self.optimizer)
        plain = lt.TrainingStep(self.model, classify, self.optimizer)
        self.step: Any = lt.training_step(self.model, classify, self.optimizer, batches()[0]) if planned else plain
        self.digest = digest
        self.graphs: list[int] = []

    def go_on(self, first: int, last: int) -> list[str]:
        """Run some steps."""
        found: list[str] = []
        for index in range(first, last):
            torch.manual_seed(index)
            loss = self.step(*batches()[index])
            self.scheduler.step()
            state = self.optimizer.state_dict()
            found.append(self.digest([loss, self.model.state_dict(), state, torch.get_rng_state()]))
            if isinstance(self.step, lt.PlannedStep):
                self.graphs.append(id(self.step.captured))
        return found

    def take_over(self, other: "Run") -> None:
        """Continue what another run began, by its state dicts."""
        self.model.load_state_dict(other.model.state_dict())
        self.optimizer.load_state_dict(other.optimizer.state_dict())
        self.scheduler.load_state_dict(other.scheduler.state_dict())


@pytest.mark.share_of_cases
@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        *((name, list(Schedules)[index % 3]) for index, name in enumerate(Optimizers)),
        *((name, schedule) for name in ("sgd-nesterov", "adamw", "adamw-fused") for schedule in Schedules),
    ],
)
def test_a_schedule_changes_settings_without_capturing_again_and_bits_stay_equal(
    name: str, schedule: str, digest: Callable[[Any], str]
) -> None:
    planned = Run(name, schedule, True, digest)
    assert planned.go_on(0, N_STEPS) == Run(name, schedule, False, digest).go_on(0, N_STEPS)
    assert len(set(planned.graphs)) == (2 if name in BRANCHING else 1)


@pytest.mark.share_of_cases
@pytest.mark.parametrize("name", Optimizers)
@pytest.mark.parametrize("planned_first", [True, False])
def test_state_dicts_are_interchangeable_with_the_plain_optimizer(
    name: str, planned_first: bool, digest: Callable[[Any], str]
) -> None:
    expected = Run(name, "step", False, digest).go_on(0, 4)
    first, second = (Run(name, "step", planned, digest) for planned in (planned_first, not planned_first))
    assert first.go_on(0, 2) == expected[:2]
    second.take_over(first)
    assert second.go_on(2, 4) == expected[2:]


def test_settings_that_are_constants_of_the_graph_may_change_too(digest: Callable[[Any], str]) -> None:
    """Anything but a rate, momentum, beta or decay makes the step capture anew, with equal bits."""

    def run(planned: bool) -> list[str]:
        run = Run("adamw", "step", planned, digest)
        found = run.go_on(0, 2)
        for group in run.optimizer.param_groups:
            group["eps"] = 1e-3
        run.optimizer.param_groups[0]["weight_decay"] = 0.0
        return found + run.go_on(2, 4)

    assert run(True) == run(False)


def test_optimizers_without_a_fixed_update_are_refused_with_a_way_out() -> None:
    model = make("sgd")[0]
    for optimizer, message in (
        (o.LBFGS(model.parameters()), "closure"),
        (o.SparseAdam(model.parameters()), "dense gradients"),
    ):
        with pytest.raises(UnsupportedError, match=f"{message}.*plan the model alone"):
            lt.training_step(model, classify, optimizer, batches()[0])


def test_hooks_that_a_graph_cannot_call_are_refused() -> None:
    model, optimizer = make("sgd")
    handle = optimizer.register_step_post_hook(lambda *_: None)
    with pytest.raises(UnsupportedError, match="step hooks"):
        lt.training_step(model, classify, optimizer, batches()[0])
    handle.remove()
    next(model.parameters()).register_hook(lambda gradient: gradient)
    with pytest.raises(UnsupportedError, match="gradient hooks"):
        lt.training_step(model, classify, optimizer, batches()[0])
