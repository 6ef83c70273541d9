"""Updates in chunks are bit-equal, and used where they lower the planned and measured peak."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
import lowtide.torch as lt
from lowtide.engine.plan import Plan, write_plan_file
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.plan_file import read_plan
from lowtide.engine.planning.settings import PlanSettings
from tests.frameworks.torch.rewrites.examples import chunked

TOKENS, WIDTH = 4099, 70
N_STEPS = 3

Optimizers: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}),
    "sgd-foreach": ("SGD", {"lr": 0.1, "momentum": 0.9, "foreach": True}),
    "sgd-fused": ("SGD", {"lr": 0.1, "momentum": 0.9, "fused": True, "weight_decay": 0.1}),
    "adam": ("Adam", {"weight_decay": 0.1, "amsgrad": True}),
    "adam-foreach": ("Adam", {"foreach": True}),
    "adam-fused": ("Adam", {"fused": True, "amsgrad": True}),
    "adamw": ("AdamW", {}),
    "adamw-foreach": ("AdamW", {"foreach": True, "maximize": True}),
    "adamw-fused": ("AdamW", {"fused": True}),
    "adagrad": ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.1}),
    "adagrad-foreach": ("Adagrad", {"foreach": True}),
    "rmsprop": ("RMSprop", {"momentum": 0.5, "centered": True}),
    "rmsprop-foreach": ("RMSprop", {"foreach": True}),
    "adadelta": ("Adadelta", {}),
    "adadelta-foreach": ("Adadelta", {"foreach": True}),
    "adamax": ("Adamax", {}),
    "nadam": ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    "nadam-foreach": ("NAdam", {"foreach": True}),
    "radam": ("RAdam", {}),
    "asgd": ("ASGD", {"lr": 0.1}),
}


CLIPPING: dict[str, Callable[[list[torch.Tensor]], Any]] = {
    "clip_grad_norm": lambda parameters: nn.utils.clip_grad_norm_(parameters, 0.01),
    "clip_grad_value": lambda parameters: nn.utils.clip_grad_value_(parameters, 0.001),
}


class Tied(nn.Module):
    """A token embedding with an output layer of the same weights, and a padding token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH, padding_idx=3)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.mix(self.tokens(tokens))))


def predict(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Return the loss of predicting every token from itself."""
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def make(name: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model with fixed random weights and its optimizer."""
    torch.manual_seed(0)
    model = Tied().train()
    kind, settings = Optimizers[name]
    return model, getattr(torch.optim, kind)(model.parameters(), **settings)


def batch(seed: int) -> tuple[torch.Tensor]:
    """Return tokens, including the padding token and repeated ones."""
    tokens = torch.randint(0, TOKENS, (2, 5), generator=torch.Generator().manual_seed(seed))
    tokens[0, 1], tokens[1, 0], tokens[1, 2] = 3, tokens[0, 0], TOKENS - 1
    return (tokens,)


def is_in_chunks(step: lt.PlannedStep) -> bool:
    """Return whether the plan is for the program in chunks."""
    return step.captured is not step.unmodified


@pytest.mark.share_of_cases
@pytest.mark.parametrize("name", Optimizers)
def test_parameters_and_state_have_equal_bits(name: str, digest: Callable[[Any], str]) -> None:
    def run(planned: bool) -> list[str]:
        model, optimizer = make(name)
        step: Any = lt.TrainingStep(model, predict, optimizer)
        if planned:
            step = lt.training_step(model, predict, optimizer, batch(0))
        found = [digest([step(*batch(seed)), model.state_dict(), optimizer.state_dict()]) for seed in range(N_STEPS)]
        assert not planned or is_in_chunks(step)
        return found

    assert run(True) == run(False)


@pytest.mark.share_of_cases
@pytest.mark.parametrize("name", ["adamw", "adam-fused", "adadelta-foreach"])
def test_the_peak_is_below_the_lower_bound_without_chunks(name: str) -> None:
    model, optimizer = make(name)
    step = lt.training_step(model, predict, optimizer, batch(0))
    whole = lowtide.minimize(lt.read(step.unmodified))
    assert step.result.peak_bytes["cpu"] < 0.65 * whole.lower_bound_bytes["cpu"]
    assert step.result.baseline_peak_bytes == whole.baseline_peak_bytes
    measured = step.measure()
    assert measured.outputs_equal
    predicted = step.result.peak_bytes["cpu"]
    assert abs(measured.after_bytes - predicted) <= 0.02 * predicted
    assert abs(measured.before_bytes - whole.baseline_peak_bytes["cpu"]) <= 0.02 * measured.before_bytes


@pytest.mark.parametrize(
    "settings",
    [
        {"clip_grad_norm": 0.01},
        {"clip_grad_value": 0.001},
        {"accumulate": 2},
        {"budget": "40%"},
        {"averaged": True},
        {"averaged": True, "budget": "70%", "accumulate": 3},
    ],
    ids=str,
)
def test_bits_are_equal_for_all_settings_of_the_step(settings: dict[str, Any], digest: Callable[[Any], str]) -> None:
    def run(planned: bool) -> list[str]:
        model, optimizer = make("adamw")
        given = dict(settings)
        averaged = (
            torch.optim.swa_utils.AveragedModel(model, use_buffers=True) if given.pop("averaged", False) else None
        )
        hooks: dict[str, Any] = {} if averaged is None else {"after_update": averaged.update_parameters}
        if planned:
            step: Any = lt.training_step(model, predict, optimizer, batch(0), **given, **hooks)
        else:
            more = {"accumulate": given.get("accumulate", 1), "before_update": CLIPPING.get(next(iter(given), ""))}
            step = lt.TrainingStep(model, predict, optimizer, **more, **hooks)
        held = [model.state_dict(), None if averaged is None else averaged.state_dict()]
        found = [digest([step(*batch(seed)), held]) for seed in range(6)]
        return [*found, digest(optimizer.state_dict())]

    assert run(True) == run(False)


def test_a_plan_for_the_program_in_chunks_is_applied_to_the_given_program(tmp_path: Path) -> None:
    model, optimizer = make("adamw")
    program = (lt.TrainingStep(model, predict, optimizer), batch(0))
    opened = lt.TorchModel(program)
    result = plan_best_form(opened, PlanSettings())
    graph = result.graph
    assert graph is opened.in_chunks is not None
    assert graph.fingerprint != opened.graph.fingerprint
    write_plan_file(result.plan, tmp_path / "p.plan.json", graph)
    assert read_plan(tmp_path / "p.plan.json", opened)[0].graph is graph
    assert lt.apply(result.plan, program).captured.name == graph.name
    assert lt.apply(Plan.baseline(opened.graph), program).captured.name == opened.graph.name


def test_small_updates_and_updates_that_need_all_rows_are_not_in_chunks() -> None:
    torch.manual_seed(0)
    small = nn.Linear(64, 64)
    step = lt.TrainingStep(small, lambda m, x: m(x).sum(), torch.optim.AdamW(small.parameters()))
    assert chunked(lt.capture((step, (torch.randn(4, 64),)))).module is None
    model, optimizer = make("adamw")
    step = lt.TrainingStep(model, predict, optimizer, before_update=_center)
    assert chunked(lt.capture((step, batch(0)))).module is None


def _center(parameters: list[torch.Tensor]) -> None:
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.sub_(parameter.grad.mean())


def test_no_chunks_if_activations_set_the_peak() -> None:
    model, optimizer = make("sgd")
    tokens = torch.randint(0, TOKENS, (16, 64), generator=torch.Generator().manual_seed(0))
    step = lt.training_step(model, lambda model, tokens: model(tokens).tanh().mean(), optimizer, (tokens,))
    assert not is_in_chunks(step)
