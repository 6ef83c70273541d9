"""A whole training step with copies to the host: the bits of the plain loop, in the memory that was predicted."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.core.errors import UsageError
from lowtide.frameworks.torch.measure.allocation_events import host_peak_of_call, peak_of_call

N_STEPS = 3
ALL = ("reorder", "share", "recompute", "offload")


class Layers(nn.Module):
    """Linear layers with layer norms and dropout, first and last weight tied, and the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(6))
        self.layers[-1].weight = self.layers[0].weight  # pyright: ignore[reportAttributeAccessIssue]

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            value = value + nn.functional.dropout(norm(nn.functional.gelu(layer(value))), 0.1)
        return value.pow(2).mean()


def _made() -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    torch.manual_seed(0)
    model = Layers().train()
    return model, torch.optim.AdamW(model.parameters(), lr=0.01), torch.randn(512, 32)


@pytest.mark.share_of_cases
@pytest.mark.parametrize("more", [{}, {"clip_grad_norm": 0.5}, {"accumulate": 2}], ids=lambda more: "".join(more))
@pytest.mark.parametrize("allow", [ALL, ("offload",)])
def test_steps_are_bit_equal_to_the_plain_loop(
    more: dict[str, Any], allow: tuple[str, ...], digest: Callable[[Any], str]
) -> None:
    """Losses, parameters and optimizer state, with clipping and with accumulation."""
    model, optimizer, batch = _made()
    state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    step = lt.training_step(
        model, None, optimizer, (batch,), budget="60%", allow=allow, host_bandwidth="2 GB/s", **more
    )
    assert step.result.transfers.bytes_out > 0
    traces: list[str] = []
    for run in (step, step.step):
        model.load_state_dict(state[0])
        optimizer.load_state_dict(state[1])
        optimizer.state.clear()
        torch.manual_seed(5)
        losses = [run(batch) for _ in range(2 * N_STEPS)]
        traces.append(digest([losses, model.state_dict(), optimizer.state_dict(), torch.get_rng_state()]))
    assert traces[0] == traces[1]


def test_device_and_host_hold_what_was_predicted() -> None:
    model, optimizer, batch = _made()
    step = lt.training_step(model, None, optimizer, (batch,), budget="60%", allow=ALL, host_bandwidth="2 GB/s")
    measured = step.measure()
    result = step.result
    assert measured.outputs_equal
    assert measured.after_bytes == pytest.approx(result.peak_bytes["cpu"], rel=0.02)
    assert measured.after_bytes <= 0.61 * result.baseline_peak_bytes["cpu"]
    assert measured.host_bytes == result.peak_bytes["host"] > 0


def _squares(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).pow(2).mean()


@pytest.mark.usefixtures("quick_inductor")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Inductor's own
def test_a_compiled_step_copies_what_was_planned_and_follows_the_plain_loop() -> None:
    """Less on the device than without copies, the bytes on the host that were predicted, parameters to rounding."""

    def run(compiled: bool) -> tuple[list[torch.Tensor], Any]:
        torch.manual_seed(0)
        model = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(32, 32), nn.GELU())))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step: Any = lt.TrainingStep(model, _squares, optimizer)
        if compiled:
            options: Any = {"allow": ("reorder", "offload"), "host_bandwidth": "2 GB/s", "compiler": "inductor"}
            step = lt.training_step(model, _squares, optimizer, (batch,), budget="70%", **options)
        losses = [step(batch) for _ in range(N_STEPS)]
        return [*losses, *(parameter.detach() for parameter in model.parameters())], step

    batch = torch.randn(512, 32)
    expected, _ = run(False)
    found, step = run(True)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    cpu = torch.device("cpu")
    on_host, (peak, _) = host_peak_of_call(lambda: peak_of_call(lambda: step(batch), cpu), cpu)
    assert on_host == step.result.peak_bytes["host"] == step.result.transfers.bytes_out > 0
    assert peak + batch.nbytes <= step.result.peak_bytes["cpu"] <= 0.71 * step.result.baseline_peak_bytes["cpu"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"host_bandwidth": "25 GB/s"}, "add 'offload' to allow"),
        ({"allow": ("offload",), "host_capacity": "much"}, "cannot read 'much'"),
    ],
)
def test_a_host_that_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    model, optimizer, batch = _made()
    with pytest.raises(UsageError, match=message):
        lt.training_step(model, None, optimizer, (batch,), budget="60%", **given)


def test_an_explained_step_names_what_the_host_holds() -> None:
    """Peaks of every memory space, the host among them, as planning says."""
    model, optimizer, batch = _made()
    step = lt.training_step(model, None, optimizer, (batch,), budget="60%", allow=("offload",), host_bandwidth="2 GB/s")
    (program,) = lt.explain(step).programs
    assert {peak.space: peak.peak_bytes for peak in program.planned} == dict(step.result.peak_bytes)
    (host,) = (peak for peak in program.planned if peak.space == "host")
    assert sum(each.holder.size_bytes for each in host.holders) == host.peak_bytes > 0
