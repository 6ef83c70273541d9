"""Measured steps: the peak matches the prediction, and all state is restored."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.core.errors import UsageError
from lowtide.engine.analysis import Problem, simulate
from lowtide.engine.plan import Plan
from tests.oracles.random_plans import random_order as random_order_of

COMPILED = {"compiler": "eager", "effort": "fast"}


@pytest.fixture(autouse=True)
def _nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def make_model() -> nn.Module:
    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1))]
    return nn.Sequential(*layers, nn.Linear(64, 1))


def make_step(model: nn.Module, **options: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    compiled = torch.compile(lambda x: model(x).square().mean(), backend="lowtide", options={**COMPILED, **options})

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = compiled(x)
        loss.backward()
        return loss.detach()

    return step


def batch() -> torch.Tensor:
    return torch.randn(512, 64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("budget", [None, "70%"])
def test_the_measured_peak_of_a_compiled_step_is_the_predicted_one(budget: str | None) -> None:
    """Also for a compiled step. With a budget, measured and predicted peaks fall together."""
    model = make_model()
    step = make_step(model, budget=budget)
    step(batch())
    measured = lt.measure(step, batch(), state=[model], timed_calls=1)
    assert measured.predicted_peak_bytes is not None
    assert measured.measured_over_predicted == pytest.approx(1, abs=0.02)
    assert measured.predicted_unmodified_peak_bytes is not None
    if budget is not None:
        assert measured.measured_peak_bytes <= 0.7 * measured.predicted_unmodified_peak_bytes
    assert len(measured.planned) == 1
    assert measured.median_seconds > 0


def test_the_eager_step_is_measured_beside_a_compiled_one() -> None:
    """Without the compiler, the step needs as much as if it was never compiled."""
    model = make_model()
    measured = lt.measure(make_step(model, budget="70%"), batch(), state=[model], with_eager=True, timed_calls=1)

    def plain(x: torch.Tensor) -> None:
        model(x).square().mean().backward()

    alone = lt.measure(plain, batch(), state=[model], timed_calls=1)
    assert measured.eager is not None
    assert measured.eager.measured_peak_bytes == alone.measured_peak_bytes > measured.measured_peak_bytes
    assert alone.predicted_peak_bytes is None
    assert alone.measured_over_predicted is None
    assert alone.reason == "nothing that ran was planned by lowtide"
    assert "eager peak" in str(measured)
    assert "predicted" not in str(alone)


def test_measuring_puts_everything_back_that_it_was_given(digest: Callable[[Any], str]) -> None:
    """Parameters, gradients, optimizer state, settings and random numbers. New state is dropped."""
    model = make_model()
    used = torch.optim.SGD(model.parameters(), momentum=0.9)
    fresh = torch.optim.AdamW(model.parameters())
    model(batch()).mean().backward()
    used.step()
    kept = [*model.parameters(), *(parameter.grad for parameter in model.parameters())]
    before = digest([kept, used.state_dict(), torch.get_rng_state()])

    def step(x: torch.Tensor) -> None:
        for optimizer in (used, fresh):
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            optimizer.param_groups[0]["lr"] *= 0.5

    lt.measure(step, batch(), state=[model, used, fresh], timed_calls=1)
    after = [*model.parameters(), *(parameter.grad for parameter in model.parameters())]
    assert list(map(id, after)) == list(map(id, kept))
    assert digest([after, used.state_dict(), torch.get_rng_state()]) == before
    assert not fresh.state
    assert fresh.param_groups[0]["lr"] == 1e-3


def test_an_error_of_the_step_leaves_everything_as_it_was(digest: Callable[[Any], str]) -> None:
    model = make_model()
    before = digest([list(model.parameters()), torch.get_rng_state()])

    def step(x: torch.Tensor) -> None:
        with torch.no_grad():
            model[0].weight.add_(torch.randn(()))
        raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        lt.measure(step, batch(), state=[model])
    assert digest([list(model.parameters()), torch.get_rng_state()]) == before


def test_a_module_brings_its_own_state_and_its_inputs_count() -> None:
    model = nn.Linear(256, 256, bias=False)
    measured = lt.measure(model, torch.ones(256, 256), timed_calls=1)
    assert measured.measured_peak_bytes == 2 * 256 * 256 * 4


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # TorchDynamo looks at it where a graph breaks
def test_several_programs_are_listed_without_one_prediction() -> None:
    """A graph break makes two programs, and neither predicts the peak."""
    model = make_model()

    def broken(x: torch.Tensor) -> torch.Tensor:
        hidden = model[0](x)
        torch._dynamo.graph_break()
        return model[1:](hidden).mean()

    step = torch.compile(broken, backend="lowtide", options=COMPILED)
    measured = lt.measure(lambda x: step(x).backward(), batch(), state=[model], timed_calls=1)
    assert len(measured.planned) == 2
    assert measured.predicted_peak_bytes is None
    assert "2 programs ran" in str(measured)


@pytest.mark.parametrize("random_order", [False, True])
def test_an_applied_plan_predicts_its_own_peak(random_order: bool) -> None:
    """The peak is predicted with and without the plan."""
    given = (torch.randn(256, 256), torch.randn(256, 256))
    captured = lt.capture((lambda x, w: ((x @ w).relu() + (x @ w.t()).tanh() * x.sin(), x.sum(1)), given))
    graph = lt.read(captured)
    plan = (
        Plan.baseline(graph)
        if not random_order
        else Problem(graph).plan(np.asarray(random_order_of(graph, Random(3)), np.int32))
    )
    measured = lt.measure(lt.apply(plan, captured), *given, timed_calls=1)
    assert measured.predicted_peak_bytes == simulate(graph, plan).peak_bytes["cpu"]
    assert measured.measured_over_predicted == pytest.approx(1, abs=0.02)
    assert measured.predicted_unmodified_peak_bytes == simulate(graph, Plan.baseline(graph)).peak_bytes["cpu"]
    assert measured.reason is None


def test_what_cannot_be_called_cannot_be_measured() -> None:
    with pytest.raises(UsageError, match="cannot measure a list"):
        lt.measure([])  # pyright: ignore[reportArgumentType]
