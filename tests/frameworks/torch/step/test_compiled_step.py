"""A step compiled by Inductor computes what eager does, to rounding, within the predicted memory."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch._inductor.config
from torch import nn

import lowtide.torch as lt
from lowtide.errors import UnsupportedError, UsageError
from lowtide.frameworks.torch.allocation_events import peak_of_call

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # Inductor's own
N_STEPS = 4
WIDTH = 64


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compile in this process, into a folder of this test's own."""
    monkeypatch.setitem(os.environ, "TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with torch._inductor.config.patch(compile_threads=1):
        yield
    torch._dynamo.reset()


def make_model() -> nn.Module:
    """Return a small model with fixed random weights, in training mode."""
    torch.manual_seed(1)
    layers = [part for _ in range(2) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.2))]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 4)).train()


def classify(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy over classes."""
    return nn.functional.cross_entropy(model(inputs), labels)


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch of feature rows and labels."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(256, WIDTH, generator=generator), torch.randint(0, 4, (256,), generator=generator)


def test_losses_and_parameters_follow_a_schedule_as_in_eager_within_the_predicted_peak() -> None:
    def run(compiled: bool) -> tuple[list[torch.Tensor], list[torch.Tensor], object]:
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        if compiled:
            step = lt.training_step(model, classify, optimizer, batch(0), compiler="inductor")
        else:
            step = lt.TrainingStep(model, classify, optimizer)
        torch.manual_seed(3)
        losses: list[torch.Tensor] = []
        for seed in range(N_STEPS):
            losses.append(step(*batch(seed)))
            schedule.step()
        return losses, [parameter.detach().clone() for parameter in model.parameters()], step

    losses, parameters, _ = run(False)
    compiled_losses, compiled_parameters, step = run(True)
    torch.testing.assert_close(compiled_losses, losses)
    torch.testing.assert_close(compiled_parameters, parameters, rtol=1e-4, atol=1e-5)
    assert isinstance(step, lt.PlannedStep)
    given = batch(0)
    peak, _ = peak_of_call(lambda: step(*given), torch.device("cpu"))
    assert peak + sum(tensor.nbytes for tensor in given) <= step.result.peak_bytes["cpu"] + 4096


def test_what_inductor_cannot_do_is_refused_in_one_line() -> None:
    model = make_model()
    fused = torch.optim.AdamW(model.parameters(), fused=True)
    plain = torch.optim.AdamW(model.parameters())
    with pytest.raises(UnsupportedError, match="without fused=True"):
        lt.training_step(model, classify, fused, batch(0), compiler="inductor")
    with pytest.raises(UsageError, match="merge what runs again"):
        lt.training_step(model, classify, plain, batch(0), compiler="inductor", allow={"recompute"}, budget="50%")
    with pytest.raises(UnsupportedError, match="several calls"):
        lt.training_step(model, classify, plain, batch(0), compiler="inductor", accumulate=2)
    with pytest.raises(UsageError, match="unknown compiler"):
        lt.training_step(model, classify, plain, batch(0), compiler="gcc")  # type: ignore[arg-type]
