"""Parameters on the host, for steps that do not fit otherwise: the bits of the plain loop, and the predicted memory."""

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

import lowtide.torch as lt
from lowtide.core.errors import UsageError
from lowtide.engine.graph import PARAMETER_FROM_HOST, STATE_TO_HOST
from lowtide.frameworks.torch.internals.host_memory import cpu_host, home_of
from tests.frameworks.torch.training.test_every_optimizer import Optimizers
from tests.frameworks.torch.training.test_state_in_rows import N_ROWS, make_embeddings, random_rows
from tests.frameworks.torch.training.test_state_in_rows import WIDTH as ROW
from tests.frameworks.torch.training.test_state_on_host import (
    ALL,
    WIDTH,
    make_model,
    plan_step,
    random_batch,
    squared_loss,
    train,
)

pytestmark = pytest.mark.usefixtures("cache_of_the_run")
ROUNDED = (*ALL, "rounding")
LARGE_UPDATES = {"adafactor", "adafactor-foreach"}
"""These compute with several tensors of a parameter's size."""


def _planned(model: nn.Module, optimizer: Any, *, parameters: float = 1.2, **more: Any) -> lt.PlannedStep:
    """Return a step for a budget that is too small for parameters, gradients and activations together."""
    step = plan_step(model, optimizer, parameters=parameters, **more)
    assert step.result.shortfall is None
    assert step.result.parameters_on_host_bytes > 0
    return step


def _copies(step: lt.PlannedStep, kind: str) -> list[int]:
    """Return how often the plan runs each op of a kind."""
    order = step.plan.order().tolist()
    return [order.count(op) for op, each in enumerate(step.graph.op_kinds) if each == kind]


@pytest.mark.share_of_cases
@pytest.mark.parametrize("allow", [ALL, ROUNDED], ids=["updated on the device", "updated where it costs less"])
@pytest.mark.parametrize("name", [name for name in Optimizers if name not in LARGE_UPDATES])
def test_every_optimizer_keeps_the_bits_of_the_plain_loop(
    name: str, allow: tuple[str, ...], digest: Callable[[Any], str]
) -> None:
    """Losses, parameters and state over several steps with a schedule."""
    model, optimizer = make_model(name)
    found = train(_planned(model, optimizer, parameters=1.4, allow=allow), model, optimizer, digest)
    assert any(cpu_host.holds(parameter) for parameter in model.parameters())
    plain, own = make_model(name)
    assert found == train(lt.TrainingStep(plain, squared_loss, own), plain, own, digest)


@pytest.mark.parametrize("allow", [ALL, ROUNDED], ids=["updated on the device", "updated on the host"])
def test_memory_on_the_device_and_the_host_is_as_predicted(allow: tuple[str, ...]) -> None:
    model, optimizer = make_model()
    step = _planned(model, optimizer, allow=allow)
    result = step.result
    step(random_batch())
    on_host = [parameter.nbytes for parameter in model.parameters() if cpu_host.holds(parameter)]
    assert result.parameters_on_host_bytes == sum(on_host)
    held = sum(parameter.nbytes for parameter in model.parameters())
    assert result.persistent_bytes["cpu"] + result.peak_bytes["cpu"] <= int(1.2 * held)
    measured = step.measure()
    assert measured.outputs_equal
    assert measured.host_bytes == result.persistent_bytes["host"] + result.peak_bytes["host"]
    assert measured.after_bytes == pytest.approx(result.peak_bytes["cpu"], rel=0.02)


def test_parameters_stay_on_the_device_if_the_budget_is_met_with_state_on_the_host() -> None:
    model, optimizer = make_model()
    step = plan_step(model, optimizer, parameters=2.2)
    step(random_batch())
    assert step.result.state_on_host_bytes > 0 == step.result.parameters_on_host_bytes
    assert not any(map(cpu_host.holds, model.parameters()))


def test_a_tight_budget_repeats_copies_and_counts_them_as_copies() -> None:
    """A weight leaves the device after the forward pass, and is copied again for the backward pass."""
    step = _planned(*make_model("sgd"), parameters=0.7)
    assert max(_copies(step, PARAMETER_FROM_HOST)) == 2
    order = step.plan.order().tolist()
    again = sum(times - 1 for times in _copies(step, PARAMETER_FROM_HOST))
    assert step.result.reruns == len(order) - step.graph.n_ops - again
    assert step.measure().outputs_equal


def test_frozen_weights_are_copied_to_the_device_only(digest: Callable[[Any], str]) -> None:
    """As in training with adapters."""
    traces: list[list[str]] = []
    for planned in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(*(part for _ in range(6) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))
        for layer in list(model)[:-2]:
            layer.requires_grad_(False)
        optimizer = torch.optim.AdamW(model[-2].parameters())
        step: Any = lt.TrainingStep(model, squared_loss, optimizer)
        if planned:
            step = _planned(model, optimizer, parameters=0.6)
            assert len(_copies(step, PARAMETER_FROM_HOST)) > len(_copies(step, STATE_TO_HOST)) - 2
        traces.append(train(step, model, optimizer, digest))
    assert traces[0] == traces[1]


@pytest.mark.share_of_cases
@pytest.mark.parametrize("allow", [ALL, ROUNDED], ids=["device", "host"])
@pytest.mark.parametrize(
    "more", [{"clip_grad_norm": 0.01}, {"clip_grad_value": 0.001}, {"grad_scaler": True}], ids="".join
)
def test_other_parts_of_the_step_work(more: dict[str, Any], allow: Any, digest: Callable[[Any], str]) -> None:
    traces: list[list[str]] = []
    for planned in (True, False):
        model, optimizer = make_model("adamw-fused" if "grad_scaler" in more else "adamw")
        given = {"grad_scaler": torch.amp.GradScaler("cpu")} if "grad_scaler" in more else more
        step = _planned(model, optimizer, parameters=1.9, allow=allow, **given)
        traces.append(train(step if planned else step.step, model, optimizer, digest))
    assert traces[0] == traces[1]


def test_parameters_that_share_a_storage_stay_on_the_device(digest: Callable[[Any], str]) -> None:
    """Views of one flat tensor stay views of it."""
    traces: list[list[str]] = []
    for planned in (True, False):
        model, optimizer = make_model()
        flat = torch.cat([layer.weight.detach().flatten() for layer in (model[0], model[2])])
        for layer, part in zip((model[0], model[2]), flat.split(WIDTH**2), strict=True):
            layer.weight.data = part.view(WIDTH, WIDTH)
        step: Any = lt.TrainingStep(model, squared_loss, optimizer)
        if planned:
            step = _planned(model, optimizer, parameters=1.5)
        traces.append([*train(step, model, optimizer, digest), digest(flat)])
        assert not any(cpu_host.holds(layer.weight) for layer in (model[0], model[2]))
    assert traces[0] == traces[1]


def test_an_averaged_model_follows(digest: Callable[[Any], str]) -> None:
    """The average is on the host, too, and reads each parameter after its update."""
    traces: list[list[str]] = []
    for allow in (ALL, ROUNDED, None):
        model, optimizer = make_model()
        average = AveragedModel(model, multi_avg_fn=None, avg_fn=lambda old, new, _: old + (new - old) * 0.1)
        update: Any = average.update_parameters
        step: Any = lt.TrainingStep(model, squared_loss, optimizer, after_update=update)
        if allow is not None:
            step = _planned(model, optimizer, parameters=1.6, allow=allow, after_update=update)
        traces.append(train(step, model, optimizer, digest))
        traces[-1].append(digest(average.state_dict()))
    assert traces[0] == traces[1] == traces[2]


def test_a_model_is_evaluated_and_saved_between_steps(digest: Callable[[Any], str]) -> None:
    """`to_device` brings the parameters back, and the next step moves them again."""
    traces: list[list[str]] = []
    for planned in (True, False):
        model, optimizer = make_model()
        step: Any = _planned(model, optimizer) if planned else lt.TrainingStep(model, squared_loss, optimizer)
        trace = train(step, model, optimizer, digest)
        if planned:
            step.to_device()
            assert not any(map(cpu_host.holds, model.parameters()))
        model.eval()
        trace.append(digest(model(random_batch(7)).detach()))
        model.train()
        file = io.BytesIO()
        torch.save((model.state_dict(), optimizer.state_dict()), file)
        trace += train(step, model, optimizer, digest)
        assert planned == any(map(cpu_host.holds, model.parameters()))
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        traces.append([*trace, *train(step, model, optimizer, digest)])
    assert traces[0] == traces[1]


def test_the_update_of_a_large_parameter_is_copied_in_rows(digest: Callable[[Any], str]) -> None:
    traces: list[list[str]] = []
    for planned in (True, False):
        model, optimizer = make_embeddings()
        step: Any = lt.TrainingStep(model, squared_loss, optimizer)
        held = sum(parameter.nbytes for parameter in model.parameters())
        if planned:
            options: Any = {"budget": f"{int(1.15 * held)}B", "allow": ALL, "host_bandwidth": "25 GB/s"}
            step = lt.training_step(model, squared_loss, optimizer, (random_rows(),), effort="fast", **options)
            assert step.result.shortfall is None
            assert step.result.parameters_on_host_bytes >= N_ROWS * ROW * 4
            assert len(_copies(step, STATE_TO_HOST)) > 3 * len(list(model.parameters()))
        traces.append(
            [digest([step(random_rows(seed)), model.state_dict(), optimizer.state_dict()]) for seed in range(3)]
        )
        if planned:
            measured = step.measure()
            assert measured.outputs_equal
            assert measured.after_bytes == pytest.approx(step.result.peak_bytes["cpu"], rel=0.02)
    assert traces[0] == traces[1]


def test_a_step_is_captured_for_the_device_while_its_parameters_are_on_the_host() -> None:
    """The model need not fit on the device, here one without memory."""
    model, optimizer = make_model()
    lt.to_host(model, "meta")
    assert {home_of(parameter).type for parameter in model.parameters()} == {"meta"}
    captured = lt.TorchModel((lt.TrainingStep(model, squared_loss, optimizer), (random_batch().to("meta"),)))
    assert captured.graph.spaces[0].name == "meta"
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="finds no device"):
            lt.to_host(model)
