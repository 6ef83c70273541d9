"""Training with copies to the host, eager compiler: the bits of eager, within budgets, measured as predicted."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.engine.planning.result import Result
from lowtide.frameworks.torch.internals.host_memory import cpu_host
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs

STEPS = 3
WITH_OFFLOAD = ["reorder", "share", "offload"]
WITH_BOTH = ["reorder", "share", "recompute", "offload"]
FAST_HOST = "2 GB/s"
"""Fast beside the plain machine that ops are priced for."""


class Layers(nn.Module):
    """Linear layers with dropout, looked at through views, first and last weight tied, and the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))
        self.layers[-1].weight = self.layers[0].weight  # pyright: ignore[reportAttributeAccessIssue]

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            hidden = nn.functional.gelu(layer(value))
            value = nn.functional.dropout(hidden.view(-1, 4, 16).transpose(1, 2).reshape(-1, 64), 0.2, self.training)
        return value.pow(2).mean()


class Convolutions(nn.Module):
    """Convolutions with batch norms, in-place activations, channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True)) for _ in range(4)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        value = self.first(images.to(memory_format=torch.channels_last))
        for block in self.blocks:
            value = value + block(value)
        return value.flatten(1).logsumexp(1).mean()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    forget_programs()
    torch.manual_seed(3)


def _batch(model: nn.Module, size: int = 256) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    shape = (size, 64) if isinstance(model, Layers) else (size // 32, 3, 12, 12)
    return torch.randn(shape, generator=generator)


def _compiled(model: nn.Module, budget: str, allow: list[str], **more: Any) -> Callable[..., Any]:
    options = {"compiler": "eager", "budget": budget, "allow": allow, "host_bandwidth": FAST_HOST, **more}
    return torch.compile(model, backend="lowtide", options=options)


def _train(model: nn.Module, run: Callable[..., Any]) -> list[Any]:
    """Train some steps; returns all that is left behind."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(11)
    losses: list[torch.Tensor] = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = run(_batch(model))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    gradients = [parameter.grad for parameter in model.parameters()]
    return [losses, list(model.parameters()), gradients, list(model.buffers()), torch.get_rng_state()]


def _planned() -> Result:
    (program,) = planned_programs()
    return program.result


@pytest.mark.share_of_cases
@pytest.mark.parametrize("kind", [Layers, Convolutions])
@pytest.mark.parametrize(("allow", "budget"), [(WITH_OFFLOAD, "75%"), (WITH_BOTH, "60%")])
def test_training_is_bit_equal_to_eager_within_the_budget(
    kind: type[nn.Module], allow: list[str], budget: str, digest: Callable[[Any], str]
) -> None:
    """Losses, gradients, statistics and random state are eager's; device and host hold what the plan says."""
    model = kind().train()
    twin = copy.deepcopy(model)
    compiled = _compiled(twin, budget, allow)
    assert digest(_train(twin, compiled)) == digest(_train(model, model))
    result = _planned()
    assert result.transfers.bytes_out > 0
    held = cpu_host.live_bytes
    measured = lt.measure(lambda batch: compiled(batch).backward(), _batch(twin), state=[twin])
    allowed = int(budget[:-1]) / 100 * result.baseline_peak_bytes["cpu"]
    assert result.shortfall is None
    assert measured.measured_peak_bytes == pytest.approx(result.peak_bytes["cpu"], rel=0.02)
    assert measured.measured_peak_bytes <= allowed * 1.01
    assert measured.measured_host_bytes == result.peak_bytes["host"]
    assert "on the host" in str(measured)
    assert cpu_host.live_bytes == held


def test_a_fast_host_costs_less_time_than_running_again() -> None:
    results: list[Result] = []
    for allow, speed in ((["reorder", "share", "recompute"], None), (WITH_BOTH, FAST_HOST)):
        torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
        forget_programs()
        model = Layers()
        _compiled(model, "50%", allow, host_bandwidth=speed)(_batch(model)).backward()
        results.append(_planned())
    alone, both = results
    assert alone.shortfall is both.shortfall is None
    assert both.extra_cost < 0.5 * alone.extra_cost


def test_a_graph_that_is_kept_goes_backward_twice() -> None:
    """What is on the host comes back for the second backward pass as well."""
    model = Layers().eval()
    batch = _batch(model)
    loss = _compiled(model, "60%", WITH_OFFLOAD)(batch)
    assert _planned().transfers.bytes_out > 0
    loss.backward(retain_graph=True)
    once = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    loss.backward()
    for gradient, parameter in zip(once, model.parameters(), strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, 2 * gradient)


def test_two_forward_passes_may_wait_for_their_backward_passes() -> None:
    """Copies of two calls are on the host at once, and each comes back where it belongs."""
    model = Layers().eval()
    compiled = _compiled(model, "60%", WITH_OFFLOAD)
    batches = [_batch(model), 2 * _batch(model)]
    (compiled(batches[0]) + compiled(batches[1])).backward()
    found = [parameter.grad for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    traced = torch.compile(model, backend="aot_eager")  # which adds up the gradients of the tied weight as ours does
    (traced(batches[0]) + traced(batches[1])).backward()
    for gradient, parameter in zip(found, model.parameters(), strict=True):
        assert torch.equal(gradient, parameter.grad)  # pyright: ignore[reportArgumentType]


def test_copies_have_the_size_that_a_call_has(digest: Callable[[Any], str]) -> None:
    """One plan serves a bucket of sizes; what is copied is as large as the batch."""
    model = Layers().eval()
    options = {"compiler": "eager", "budget": "60%", "allow": WITH_OFFLOAD, "host_bandwidth": FAST_HOST}
    compiled = torch.compile(model, backend="lowtide", dynamic=True, options=options)
    most: list[int] = []
    for size in (200, 240, 136):
        batch = _batch(model, size)
        cpu_host.restart()
        held = cpu_host.live_bytes
        for run in (model, compiled):
            model.zero_grad()
            run(batch).backward()
            most.append(cpu_host.peak_bytes - held)
            gradients = digest([parameter.grad for parameter in model.parameters()])
        model.zero_grad()
        model(batch).backward()
        assert gradients == digest([parameter.grad for parameter in model.parameters()])
    planned = _planned()
    assert most[1::2] == [planned.peak_bytes["host"] * size // 256 for size in (200, 240, 136)]


def test_a_small_host_takes_no_more_than_it_holds() -> None:
    model = Layers()
    compiled = _compiled(model, "60%", WITH_BOTH, host_capacity="200 KiB")
    cpu_host.restart()
    held = cpu_host.live_bytes
    compiled(_batch(model)).backward()
    assert 0 < cpu_host.peak_bytes - held <= 200 * 1024


def test_inference_copies_too() -> None:
    """Values that skip connections keep for long visit the host in a forward pass alone."""

    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            kept: list[torch.Tensor] = []
            for layer in self.layers[:3]:
                value = layer(value).relu()
                kept.append(value)
            for layer in self.layers[3:]:
                value = layer(value).relu() + kept.pop()
            return value

    model = Skips().eval()
    batch = torch.randn(256, 64)
    with torch.no_grad():
        found = _compiled(model, "70%", ["offload"])(batch)
        assert torch.equal(found, model(batch))
    result = _planned()
    assert result.transfers.bytes_out > 0
    assert result.shortfall is None
