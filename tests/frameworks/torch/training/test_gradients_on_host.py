"""Gradients that wait on the host between the calls of an accumulating step: the bits of the plain loop."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

import lowtide.torch as lt
from lowtide.engine.graph import GRADIENT_FROM_HOST, STATE_TO_HOST
from lowtide.frameworks.torch.internals.host_memory import cpu_host
from tests.frameworks.torch.training.test_state_on_host import (
    ALL,
    WIDTH,
    make_model,
    plan_step,
    random_batch,
    squared_loss,
)

pytestmark = pytest.mark.usefixtures("cache_of_the_run")
CALLS, STEPS = 3, 2
Call = Callable[[Any, int], object]


def _planned(model: nn.Module, optimizer: Any, *, parameters: float = 2.1, **more: Any) -> lt.PlannedStep:
    """Return a step for a budget that is too small for parameters, gradients and activations together."""
    step = plan_step(model, optimizer, parameters=parameters, accumulate=CALLS, **more)
    assert step.result.shortfall is None
    assert GRADIENT_FROM_HOST in step.graph.op_kinds
    return step


def _train(
    step: Any, model: nn.Module, optimizer: Any, digest: Callable[[Any], str], between: Call | None
) -> list[str]:
    found: list[str] = []
    for number in range(CALLS * STEPS):
        torch.manual_seed(number)
        loss = step(random_batch(number))
        if between is not None:
            between(step, number)
        found.append(digest([loss, torch.get_rng_state()]))
    return [*found, digest([model.state_dict(), optimizer.state_dict()])]


def _assert_equal(
    digest: Callable[[Any], str],
    name: str = "adamw",
    *,
    between: Call | None = None,
    more: Callable[[nn.Module], dict[str, Any]] = lambda _: {},
    **budget: Any,
) -> None:
    """Assert that planned and plain training give equal bits."""
    traces: list[list[str]] = []
    for planned in (True, False):
        model, optimizer = make_model(name)
        step = _planned(model, optimizer, **budget, **more(model))
        traces.append(_train(step if planned else step.step, model, optimizer, digest, between if planned else None))
    assert traces[0] == traces[1]


@pytest.mark.parametrize("name", ["adamw", "sgd", "adamw-fused", "adagrad"])
@pytest.mark.parametrize("allow", [ALL, (*ALL, "rounding")], ids=["updated on the device", "updated on the host"])
def test_training_keeps_the_bits_of_the_plain_loop(name: str, allow: Any, digest: Callable[[Any], str]) -> None:
    """Losses, parameters, state and random state over several steps."""
    _assert_equal(digest, name, allow=allow, parameters=1.6 if name == "sgd" else 2.1)


@pytest.mark.parametrize("part", ["clipping", "scaling", "averaging"])
def test_other_parts_of_the_step_work(part: str, digest: Callable[[Any], str]) -> None:
    def more(model: nn.Module) -> dict[str, Any]:
        if part == "averaging":
            return {"after_update": AveragedModel(model).update_parameters}
        return {"clip_grad_norm": 0.01} if part == "clipping" else {"grad_scaler": torch.amp.GradScaler("cpu")}

    name, parameters = "adamw-fused" if part == "scaling" else "adamw", 3.0 if part == "averaging" else 2.1
    _assert_equal(digest, name, more=more, parameters=parameters)


def test_each_call_copies_what_it_needs() -> None:
    """The first call copies gradients to the host, others also to the device, and the last keeps none there."""
    model, optimizer = make_model()
    step = _planned(model, optimizer)
    copies: dict[int, tuple[int, int]] = {}
    for number in range(CALLS):
        step(random_batch(number))
        states = {f"{name}.grad" for name, _ in model.named_parameters()}
        kinds = list(step.graph.op_kinds)
        out = sum(
            kind == STATE_TO_HOST and any(step.graph.buffer_names[each] in states for each in step.graph.mutates[op])
            for op, kind in enumerate(kinds)
        )
        copies[number] = out, kinds.count(GRADIENT_FROM_HOST)
    weights = sum(parameter.numel() == WIDTH**2 for parameter in model.parameters())
    assert copies == {0: (weights, 0), 1: (weights, 0), 2: (0, weights)}


def test_large_gradients_are_in_one_memory_on_the_host_and_small_ones_in_grad() -> None:
    """The memory is allocated once."""
    model, optimizer = make_model()
    step = _planned(model, optimizer)
    for number in range(CALLS * STEPS):
        step(random_batch(number))
        is_waiting = number % CALLS < CALLS - 1
        for parameter in model.parameters():
            assert (parameter.grad is None) == (parameter.numel() == WIDTH**2 or not is_waiting)
        if number == 0:
            held = cpu_host.live_bytes
        elif is_waiting:
            assert cpu_host.live_bytes == held
    weights = [parameter.nbytes for parameter in model.parameters() if parameter.numel() == WIDTH**2]
    assert step.result.persistent_bytes["host"] == 4 * sum(weights)  # parameters, two moments, gradients


@pytest.mark.parametrize("parameters", [2.1, 2.5])
def test_all_calls_of_a_step_keep_the_same_on_the_host(parameters: float) -> None:
    """Calls alone would keep different shares there, and move the others in each step."""
    step = _planned(*make_model(), parameters=parameters)
    assert len({program.on_host for program in step._programs}) == 1


def test_the_peak_of_all_calls_is_as_predicted() -> None:
    model, optimizer = make_model()
    step = _planned(model, optimizer)
    measured = step.measure()
    assert measured.outputs_equal
    assert measured.after_bytes == pytest.approx(step.peak_of_all_calls(), rel=0.02)


def test_parameters_may_return_to_the_device_between_calls(digest: Callable[[Any], str]) -> None:
    def between(step: lt.PlannedStep, number: int) -> None:
        if number % 2 == 0:
            step.to_device()

    _assert_equal(digest, between=between)


def test_a_call_of_another_shape_takes_over_the_gradients(digest: Callable[[Any], str]) -> None:
    """Its program is planned in the middle of a step, and may keep other gradients on the host."""
    traces: list[str] = []
    for planned in (True, False):
        model, optimizer = make_model()
        step = _planned(model, optimizer)
        run: Any = step if planned else step.step
        for number in range(CALLS * STEPS):
            torch.manual_seed(number)
            run(random_batch(number)[: 4 if number % CALLS == 1 else None])
        traces.append(digest([model.state_dict(), optimizer.state_dict()]))
    assert traces[0] == traces[1]


def test_a_failed_call_drops_the_gradients_of_its_step(digest: Callable[[Any], str]) -> None:
    """The next call starts a step, as in training without the failed one."""
    traces: list[str] = []
    for fails in (True, False):
        model, optimizer = make_model()
        step = _planned(model, optimizer)
        if fails:
            step(random_batch(9))
            (program,) = [each for each in step._programs if each.binding.part.done == 1]
            run = program.applied._run

            def failing(inputs: Any, run: Any = run) -> Any:
                run(inputs)
                raise RuntimeError("out of memory")

            program.applied._run = failing
            with pytest.raises(RuntimeError, match="out of memory") as raised:
                step(random_batch(8))
            assert "gradients of earlier calls are dropped" in raised.value.__notes__[0]
            program.applied._run = run
        for number in range(CALLS):
            torch.manual_seed(number)
            step(random_batch(number))
        traces.append(digest([model.state_dict(), optimizer.state_dict()]))
    assert traces[0] == traces[1]


def test_gradients_stay_on_the_device_if_the_budget_is_met_with_state_on_the_host() -> None:
    model, optimizer = make_model()
    step = plan_step(model, optimizer, parameters=3.4, accumulate=CALLS)
    assert step.result.shortfall is None
    assert step.result.state_on_host_bytes > 0
    step(random_batch())
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_plain_step_ignores_gradients_that_wait(digest: Callable[[Any], str]) -> None:
    """A step that begins plainly keeps its own gradients, also after a planned one that was not finished."""
    model, optimizer = make_model()
    step = _planned(model, optimizer)
    step(random_batch())
    step.to_device()
    step.step.done = 0
    plain, own = make_model()
    alone = lt.TrainingStep(plain, squared_loss, own, accumulate=CALLS)
    for number in range(CALLS):
        torch.manual_seed(number)
        step.step(random_batch(number))
        torch.manual_seed(number)
        alone(random_batch(number))
    assert digest(model.state_dict()) == digest(plain.state_dict())
