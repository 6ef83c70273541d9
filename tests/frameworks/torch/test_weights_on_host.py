"""Inference with weights on the host: the bits of the plain call, in a budget below the size of the weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
import lowtide.torch as lt
from lowtide.frameworks.torch.internals.host_memory import cpu_host, home_of

HOST = lowtide.Host(bandwidth_bytes_per_s=25e9)
ALLOW = ("reorder", "share", "recompute", "offload")
WIDTH, LAYERS = 64, 6


class KeepsLast(nn.Module):
    """Layers with a buffer that each call overwrites after it has read it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))
        self.register_buffer("last", torch.zeros(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.layers(x + self.last[: len(x)])
        self.last[: len(x)].copy_(made)
        return made


def _layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh()))).eval()


def _batch(seed: int = 0) -> torch.Tensor:
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(seed))


def _bytes_of(module: nn.Module) -> int:
    return sum(each.nbytes for each in (*module.parameters(), *module.buffers()))


def _plan(program: Any, batch: Any, module: nn.Module, share: float) -> tuple[lowtide.Result, Any]:
    """Return a plan within a share of a module's bytes, and the planned program."""
    model = lt.TorchModel((program, batch), host=HOST)
    result = lowtide.plan(model, budget=f"{int(share * _bytes_of(module))} B", allow=ALLOW, effort="fast")
    return result, model


@pytest.mark.parametrize("share", [0.9, 0.5])
def test_results_have_the_bits_of_the_plain_call(share: float) -> None:
    model = _layers()
    with torch.no_grad():
        expected = [model(_batch(seed)) for seed in range(3)]
    result, program = _plan(model, _batch(), model, share)
    assert result.shortfall is None
    planned = program.apply(result.plan)
    assert all(torch.equal(planned(_batch(seed)), each) for seed, each in enumerate(expected))
    on_host = [each.nbytes for each in model.parameters() if cpu_host.holds(each)]
    assert sum(on_host) == result.parameters_on_host_bytes > 0


def test_memory_on_the_device_and_the_host_is_as_predicted() -> None:
    model = _layers()
    result, program = _plan(model, _batch(), model, 0.5)
    measured = program.measure(result.plan)
    assert measured.outputs_equal
    assert measured.after_bytes == result.peak_bytes["cpu"]
    assert measured.host_bytes == result.persistent_bytes["host"] + result.peak_bytes["host"]
    assert result.persistent_bytes["cpu"] + result.peak_bytes["cpu"] <= _bytes_of(model) // 2


def test_only_as_many_weights_move_as_the_budget_requires() -> None:
    model = _layers()
    moved = [_plan(model, _batch(), model, share)[0].parameters_on_host_bytes for share in (2.0, 0.9, 0.7, 0.5)]
    assert moved[0] == 0
    assert moved == sorted(moved)
    assert len(set(moved)) == len(moved)


def test_a_buffer_that_calls_overwrite_keeps_its_contents() -> None:
    expected, own = KeepsLast(), KeepsLast()
    own.load_state_dict(expected.state_dict())
    result, program = _plan(own, _batch(), own, 0.4)
    assert result.shortfall is None
    planned = program.apply(result.plan)
    with torch.no_grad():
        for seed in range(3):
            assert torch.equal(planned(_batch(seed)), expected(_batch(seed)))
    assert torch.equal(own.last, expected.last)


def test_tensors_that_others_see_stay_on_the_device() -> None:
    """Weights of one storage, weights that the function returns, and weights that are its input."""
    model = _layers()
    shared = model.get_parameter("0.weight").detach()[:]
    model[2].register_parameter("weight", nn.Parameter(shared))

    def function(x: torch.Tensor, given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return model(x) + given.sum(), model[4].weight.detach()

    given = (_batch(), model.get_parameter("6.weight"))
    result, program = _plan(function, given, model, 0.8)
    planned = program.apply(result.plan)
    with torch.no_grad():
        expected = function(*given)
    assert all(map(torch.equal, planned(*given), expected))
    assert result.parameters_on_host_bytes > 0
    assert not any(cpu_host.holds(model.get_parameter(f"{place}.weight")) for place in (0, 2, 4, 6))


def test_weights_that_get_gradients_stay_on_the_device() -> None:
    """Gradients of a function are on the device of their parameters."""
    model = _layers()

    def mean(x: torch.Tensor) -> torch.Tensor:
        return model(x).square().mean()

    result, _ = _plan(mean, _batch(), model, 0.8)
    assert result.shortfall is not None
    assert result.parameters_on_host_bytes == 0


def test_another_plan_brings_the_weights_back() -> None:
    model = _layers()
    expected = model(_batch())
    result, program = _plan(model, _batch(), model, 0.5)
    program.apply(result.plan)(_batch())
    assert any(map(cpu_host.holds, model.parameters()))
    plain = lowtide.apply(lowtide.plan(model, _batch()).plan, model, _batch())
    assert torch.equal(plain(_batch()), expected)
    assert not any(map(cpu_host.holds, model.parameters()))


def test_a_plan_file_is_applied_to_an_exported_program(tmp_path: Path) -> None:
    model = _layers()
    exported = torch.export.export(model, (_batch(),))
    result = lowtide.plan(exported, budget=f"{_bytes_of(model) // 2} B", allow=ALLOW, host=HOST)
    assert result.parameters_on_host_bytes > 0
    opened = lt.TorchModel(exported, host=HOST)
    lowtide.save_plan(result.plan, tmp_path / "a.plan.json", opened)
    planned = lowtide.apply(lowtide.load_plan(tmp_path / "a.plan.json", opened), exported, host=HOST)
    with torch.no_grad():
        assert torch.equal(planned(_batch()), model(_batch()))


def test_a_model_is_captured_for_the_device_while_its_weights_are_on_the_host() -> None:
    model = _layers()
    expected = model(_batch())
    lt.to_host(model, "cpu")
    assert all(map(cpu_host.holds, model.parameters()))
    result, program = _plan(model, _batch(), model, 0.5)
    assert {home_of(each).type for each in model.parameters()} == {"cpu"}
    assert torch.equal(program.apply(result.plan)(_batch()), expected)
