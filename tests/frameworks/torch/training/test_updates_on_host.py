"""Updates on the host, if "rounding" is allowed: on the CPU with the bits of the plain loop."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

import lowtide.torch as lt
from examples.master_weights import MasterAdamW
from lowtide.frameworks.torch.emit.host_updates import OPERAND_TO_HOST, UPDATE_ON_HOST, finish_updates
from lowtide.frameworks.torch.internals.host_memory import cpu_host
from tests.frameworks.torch.training.test_every_optimizer import Optimizers
from tests.frameworks.torch.training.test_state_on_host import (
    ALL,
    WIDTH,
    WITHOUT_LARGE_STATE,
    make_model,
    plan_step,
    random_batch,
    squared_loss,
    train,
    trained_with_parts,
)

pytestmark = pytest.mark.usefixtures("cache_of_the_run")
ROUNDED = (*ALL, "rounding")
NOT_ELEMENT_WISE = {"rprop", "rprop-foreach"}


def _planned(model: nn.Module, optimizer: Any, **more: Any) -> lt.PlannedStep:
    options: Any = {"allow": ROUNDED, **more}
    step = plan_step(model, optimizer, **options)
    assert step.result.shortfall is None
    return step


@pytest.mark.share_of_cases
@pytest.mark.parametrize("name", [name for name in Optimizers if name not in WITHOUT_LARGE_STATE | NOT_ELEMENT_WISE])
def test_every_element_wise_optimizer_updates_on_the_host(name: str, digest: Callable[[Any], str]) -> None:
    """Losses, parameters and state over several steps with a schedule."""
    model, optimizer = make_model(name)
    step = _planned(model, optimizer)
    assert step.result.updated_on_host_bytes == step.result.state_on_host_bytes > 0
    assert step.result.to_rounding
    found = train(step, model, optimizer, digest)
    large = [value for state in optimizer.state.values() for value in state.values() if value.numel() >= WIDTH**2]
    assert all(cpu_host.holds(value) for value in large)
    plain, own = make_model(name)
    assert found == train(lt.TrainingStep(plain, squared_loss, own), plain, own, digest)


def test_memory_on_the_device_and_the_host_is_as_predicted() -> None:
    step = _planned(*make_model())
    step(random_batch())
    measured = step.measure()
    assert measured.outputs_equal
    assert measured.host_bytes == step.result.persistent_bytes["host"] + step.result.peak_bytes["host"]
    assert measured.after_bytes == pytest.approx(step.result.peak_bytes["cpu"], rel=0.02)


def test_nothing_is_updated_on_the_host_without_rounding() -> None:
    """The permission that gives up equal bits on a GPU."""
    result = _planned(*make_model(), allow=ALL).result
    assert result.state_on_host_bytes > 0 == result.updated_on_host_bytes
    assert not result.to_rounding


def test_a_slow_host_updates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices decide: with memory at a thousandth of the link's speed, updates cost less on the device."""
    monkeypatch.setattr("lowtide.engine.offload.host_space._USUAL_MEMORY", 1e-3)
    result = _planned(*make_model()).result
    assert result.state_on_host_bytes > 0 == result.updated_on_host_bytes


@pytest.mark.share_of_cases
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("adamw", {"clip_grad_norm": 0.01}),
        ("adamw-foreach", {"clip_grad_value": 0.001}),
        ("adamw", {"accumulate": 3}),
        ("adamw", {"grad_scaler": True}),
        ("adamw-fused", {"grad_scaler": True}),
    ],
    ids=lambda more: "".join(more) if isinstance(more, dict) else more,
)
def test_other_parts_of_the_step_work(name: str, more: dict[str, Any], digest: Callable[[Any], str]) -> None:
    """Clipping, accumulation and a GradScaler, which skips the update of an infinite gradient."""

    def overflow(run: Any) -> None:
        run(torch.full_like(random_batch(), float("inf")))

    steps, traces = trained_with_parts(_planned, name, more, digest, overflow if "grad_scaler" in more else None)
    assert all(step.result.updated_on_host_bytes > 0 for step in steps)
    assert traces[0] == traces[1]


def test_an_averaged_model_follows(digest: Callable[[Any], str]) -> None:
    traces: list[list[str]] = []
    for planned in (True, False):
        model, optimizer = make_model()
        average = AveragedModel(model, multi_avg_fn=None, avg_fn=lambda old, new, _: old + (new - old) * 0.1)
        update: Any = average.update_parameters
        step: Any = lt.TrainingStep(model, squared_loss, optimizer, after_update=update)
        if planned:
            step = _planned(model, optimizer, parameters=3.4, after_update=update)
            assert step.result.updated_on_host_bytes > 0
        traces.append(train(step, model, optimizer, digest, average.state_dict()))
    assert traces[0] == traces[1]


def test_master_weights_of_bfloat16_parameters_stay_on_the_host(digest: Callable[[Any], str]) -> None:
    """Two bytes per parameter go each way."""
    probe = _layers_in_bfloat16()
    plain = lt.TorchModel(
        (lt.TrainingStep(probe, _loss_of_bfloat16, MasterAdamW(probe.parameters())), (random_batch(),))
    )
    if plain.graph.scratch.max() > sum(parameter.nbytes for parameter in probe.parameters()):
        pytest.skip("products of bfloat16 need more scratch memory than the budget leaves on this processor")
    traces: list[list[str]] = []
    for planned in (True, False):
        torch.manual_seed(0)
        model = _layers_in_bfloat16()
        optimizer = MasterAdamW(model.parameters())
        step: Any = lt.TrainingStep(model, _loss_of_bfloat16, optimizer)
        if planned:
            held = sum(parameter.nbytes for parameter in model.parameters())
            options: Any = {"budget": f"{5 * held // 2}B", "allow": ROUNDED, "effort": "fast"}
            step = lt.training_step(model, _loss_of_bfloat16, optimizer, (random_batch(),), **options)
            assert step.result.updated_on_host_bytes == step.result.state_on_host_bytes == 3 * 2 * held
            assert step.result.transfers.state_bytes_out == held
        traces.append(train(step, model, optimizer, digest))
    assert traces[0] == traces[1]


def _layers_in_bfloat16() -> nn.Module:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))).to(torch.bfloat16)


def _loss_of_bfloat16(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch.to(torch.bfloat16)).float().pow(2).mean()


def test_a_checkpoint_resumes_with_and_without_updates_on_the_host(digest: Callable[[Any], str]) -> None:
    expected_model, expected_optimizer = make_model()
    plain = lt.TrainingStep(expected_model, squared_loss, expected_optimizer)
    train(plain, expected_model, expected_optimizer, digest)
    expected = train(plain, expected_model, expected_optimizer, digest)
    for hosted in ((True, False), (False, True)):
        model, optimizer = make_model()
        first: Any = _planned(model, optimizer) if hosted[0] else lt.TrainingStep(model, squared_loss, optimizer)
        train(first, model, optimizer, digest)
        file = io.BytesIO()
        torch.save((model.state_dict(), optimizer.state_dict()), file)
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        model, optimizer = make_model()
        second: Any = _planned(model, optimizer) if hosted[1] else lt.TrainingStep(model, squared_loss, optimizer)
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        assert train(second, model, optimizer, digest) == expected


def test_a_saved_plan_with_updates_on_the_host_loads_again(tmp_path: Path) -> None:
    step = _planned(*make_model())
    (path,) = step.save_plans(tmp_path)
    again = _planned(*make_model(), plan=path).result
    assert again.updated_on_host_bytes == step.result.updated_on_host_bytes > 0
    assert again.to_rounding
    assert again.extra_time == step.result.extra_time


def test_an_exception_after_an_update_leaves_the_parameter_as_its_state_says() -> None:
    """The updated parameter is still on the host when another op fails."""
    step = _planned(*make_model())
    (call, *_) = step.captured.graph_module.graph.find_nodes(op="call_function", target=UPDATE_ON_HOST)
    given, overwritten, _, key = call.args
    place = _place_of_parameter(key)
    parameter = torch.ones(WIDTH, WIDTH)
    state = [cpu_host.empty_like(parameter).fill_(0.0) for _ in range(2)]
    operands = {"gradient": OPERAND_TO_HOST(parameter), "parameter": OPERAND_TO_HOST(parameter)}
    assert (len(given), len(overwritten)) == (1, 3)
    UPDATE_ON_HOST([operands["gradient"]], [*state, operands["parameter"]], _numbers(call), key)
    finish_updates([None] * place + [parameter])
    assert torch.equal(parameter, operands["parameter"])
    assert not torch.equal(parameter, torch.ones(WIDTH, WIDTH))


def _place_of_parameter(key: str) -> int:
    from lowtide.frameworks.torch.reading.outlined import outlined_program

    ((_, place),) = outlined_program(key).parameters
    return place


def _numbers(call: Any) -> list[float]:
    return [0.1] * len(call.args[2])
