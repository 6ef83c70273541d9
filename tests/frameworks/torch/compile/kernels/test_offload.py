"""Copies of results of kernels to the host under Inductor: in the order of the plan, equal gradients, less memory."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code

from lowtide.engine.plan import StepKind
from lowtide.frameworks.torch.measure.allocation_events import host_peak_of_call, peak_of_call
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs

CPU = torch.device("cpu")

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
"""The warnings are Inductor's own; lowtide's still end a test."""


class Layers(nn.Module):
    """Linear layers with activations, first and last weight tied, and the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))
        self.layers[-1].weight = self.layers[0].weight  # pyright: ignore[reportAttributeAccessIssue]

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            value = nn.functional.gelu(layer(value))
        return value.pow(2).mean()


@pytest.fixture(name="model")
def model_fixture() -> nn.Module:
    """Give a model."""
    forget_programs()
    torch.manual_seed(3)
    return Layers()


def _gradients(model: nn.Module, run: Callable[..., Any], batch: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    run(batch).backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def _calls(codes: list[str], op: str) -> int:
    return sum(code.count(f"torch.ops.lowtide.{op}.default(") for code in codes)


@pytest.mark.share_of_cases
@pytest.mark.parametrize("dynamic", [False, True])
def test_copies_survive_in_the_generated_code_and_gradients_are_those_of_eager(model: nn.Module, dynamic: bool) -> None:
    batch = torch.randn(512, 64)
    options = {"budget": "65%", "allow": ["reorder", "offload"], "host_bandwidth": "2 GB/s"}
    compiled = torch.compile(model, backend="lowtide", dynamic=dynamic, options=options)
    found, codes = run_and_get_code(lambda: _gradients(model, compiled, batch))
    for one, other in zip(found, _gradients(model, model, batch), strict=True):
        torch.testing.assert_close(one, other)
    (program,) = planned_programs()
    assert program.ops_because is None
    plan = program.result.plan
    n_out, n_in = (int((plan.kinds == kind).sum()) for kind in (StepKind.COPY_OUT, StepKind.COPY_IN))
    assert n_out > 0
    assert (_calls(codes, "copy_to_host"), _calls(codes, "copy_to_device")) == (n_out, n_in)
    assert _calls(codes, "wait_for_copy") == n_out + n_in

    _gradients(model, compiled, batch)
    model.zero_grad()
    on_host, (peak, _) = host_peak_of_call(lambda: peak_of_call(lambda: compiled(batch).backward(), CPU), CPU)
    assert on_host == program.result.peak_bytes["host"]
    assert peak + batch.nbytes <= 1.02 * program.predicted_peak_bytes["cpu"]


def test_copies_and_recomputed_kernels_meet_a_budget_together_at_a_lower_price(model: nn.Module) -> None:
    batch, costs = torch.randn(512, 64), list[float]()
    for more in ({}, {"allow": ["reorder", "recompute", "offload"], "host_bandwidth": "2 GB/s"}):
        torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
        forget_programs()
        compiled = torch.compile(model, backend="lowtide", options={"budget": "50%", **more})
        for one, other in zip(_gradients(model, compiled, batch), _gradients(model, model, batch), strict=True):
            torch.testing.assert_close(one, other)
        (program,) = planned_programs()
        assert program.ops_because is None
        assert max(program.kernel_peaks) <= 0.5 * (program.own_peak_bytes or 0)
        costs.append(program.result.extra_cost)
        model.zero_grad()
        peak, _ = peak_of_call(lambda run=compiled: run(batch).backward(), CPU)
        assert peak + batch.nbytes <= 1.02 * program.predicted_peak_bytes["cpu"]
    assert program.result.transfers.bytes_out > 0
    assert costs[1] < costs[0]
