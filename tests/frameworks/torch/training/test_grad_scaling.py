"""A planned step with a GradScaler scales, skips and adapts its scale as the plain loop does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.core.errors import UnsupportedError

Optimizers: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda p: torch.optim.AdamW(p, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
}


def make_model() -> nn.Module:
    """Return a small model with fixed random weights, in training mode."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 4)).train()


def classify(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy with matrix products in half precision."""
    with torch.autocast("cpu", dtype=torch.float16):
        return nn.functional.cross_entropy(model(inputs), labels)


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch; the third has an infinity in it."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(6, 8, generator=generator)
    if seed == 2:
        inputs[0, 0] = torch.inf
    return inputs, torch.randint(0, 4, (6,), generator=generator)


def make_scaler() -> torch.amp.GradScaler:
    """Return a scaler that grows every second step."""
    return torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)


@pytest.mark.parametrize("optimizer", Optimizers)
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_scale_skipped_updates_and_bits_are_those_of_the_plain_loop(
    optimizer: str, clip: float | None, accumulate: int, digest: Callable[[Any], str]
) -> None:
    def plain() -> tuple[list[str], list[float]]:
        model, scaler = make_model(), make_scaler()
        updated = Optimizers[optimizer](model.parameters())
        found: list[str] = []
        scales: list[float] = []
        for seed in range(8):
            loss = classify(model, *batch(seed))
            scaler.scale(loss if accumulate == 1 else loss / accumulate).backward()
            if seed % accumulate == accumulate - 1:
                if clip is not None:
                    scaler.unscale_(updated)
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                scaler.step(updated)
                scaler.update()
                updated.zero_grad()
                found.append(digest([loss, model.state_dict(), updated.state_dict()]))
                scales.append(scaler.get_scale())
        return found, scales

    def planned() -> tuple[list[str], list[float]]:
        model, scaler = make_model(), make_scaler()
        updated = Optimizers[optimizer](model.parameters())
        step = lt.training_step(
            model, classify, updated, batch(0), clip_grad_norm=clip, accumulate=accumulate, grad_scaler=scaler
        )
        found: list[str] = []
        scales: list[float] = []
        for seed in range(8):
            loss = step(*batch(seed))
            if seed % accumulate == accumulate - 1:
                found.append(digest([loss, model.state_dict(), updated.state_dict()]))
                scales.append(scaler.get_scale())
        return found, scales

    torch.manual_seed(5)
    expected = plain()
    assert min(expected[1]) < max(expected[1])  # an update was skipped
    torch.manual_seed(5)
    assert planned() == expected


@pytest.mark.usefixtures("quick_inductor")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # Inductor's own
def test_a_compiled_step_skips_and_scales_as_the_plain_loop_does() -> None:
    """To rounding; the update is any optimizer's plain one, put back where it is skipped."""

    def run(compiled: bool) -> tuple[list[float], list[torch.Tensor]]:
        model, scaler = make_model(), make_scaler()
        optimizer = torch.optim.AdamW(model.parameters())
        step: Any = None
        if compiled:
            step = lt.training_step(model, classify, optimizer, batch(0), compiler="inductor", grad_scaler=scaler)
        torch.manual_seed(5)
        scales: list[float] = []
        for seed in range(4):
            if compiled:
                step(*batch(seed))
            else:
                scaler.scale(classify(model, *batch(seed))).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
            scales.append(scaler.get_scale())
        state = [value for entries in optimizer.state.values() for value in entries.values()]
        return scales, [*(parameter.detach() for parameter in model.parameters()), *state]

    scales, expected = run(False)
    compiled_scales, found = run(True)
    assert min(scales) < max(scales)  # an update was skipped
    assert compiled_scales == scales
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-3)


def test_the_peak_is_the_predicted_one() -> None:
    """What half-precision products take for themselves depends on the processor; up to 2 KiB are predicted here."""
    model = make_model()
    step = lt.training_step(
        model, classify, Optimizers["adamw"](model.parameters()), batch(0), grad_scaler=make_scaler()
    )
    measured = step.measure()
    assert measured.outputs_equal
    assert -256 <= step.result.peak_bytes["cpu"] - measured.after_bytes <= 2048


def test_an_optimizer_that_cannot_skip_in_a_graph_is_refused_with_a_way_out() -> None:
    model = make_model()
    with pytest.raises(UnsupportedError, match="fused=True"):
        lt.training_step(model, classify, torch.optim.Adam(model.parameters()), batch(0), grad_scaler=make_scaler())


def test_a_scaler_that_is_switched_off_changes_nothing() -> None:
    model = make_model()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    step = lt.training_step(model, classify, torch.optim.Adam(model.parameters()), batch(0), grad_scaler=scaler)
    assert step(*batch(0)).isfinite()
