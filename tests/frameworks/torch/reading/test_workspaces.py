"""Kernels of libraries with workspaces of their own: measured in their real shapes, or listed."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import lowtide
import lowtide.torch as lt
from lowtide.engine.plan import Plan
from lowtide.frameworks.torch.reading import workspaces

Build = Callable[[], tuple[nn.Module, torch.Tensor]]


class Recurrent(nn.Module):
    """A recurrent network that returns its sequence only."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


class Spectrum(nn.Module):
    """A linear layer between two Fourier transforms."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(33, 33)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft(torch.fft.rfft(x) * self.layer(torch.fft.rfft(x).abs()), 64)


BUILDS: dict[str, Build] = {
    "LSTM": lambda: (Recurrent(nn.LSTM(16, 32, 2, batch_first=True)), torch.randn(8, 40, 16)),
    "GRU": lambda: (Recurrent(nn.GRU(16, 32, bidirectional=True)), torch.randn(8, 40, 16)),
    "FFT": lambda: (Spectrum(), torch.randn(256, 64)),
    "solve": lambda: (Solve(), torch.randn(64, 32)),
    "pooling": lambda: (nn.Sequential(nn.Conv2d(4, 8, 3), nn.AdaptiveAvgPool2d(5)), torch.randn(4, 4, 24, 24)),
}


class Solve(nn.Module):
    """A system of linear equations."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.eye(32) + 0.01 * torch.randn(32, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve(self.matrix, x.T)


@pytest.mark.parametrize("name", BUILDS)
def test_a_step_with_library_kernels_takes_what_was_predicted_or_lists_them(name: str) -> None:
    torch.manual_seed(0)
    module, batch = BUILDS[name]()
    step = lt.TrainingStep(module, lambda m, x: m(x).square().mean(), torch.optim.SGD(module.parameters(), lr=0.1))
    model = lowtide.open_model((step, (batch,)))
    predicted = lowtide.minimize(model.graph, effort="fast").baseline_peak_bytes["cpu"]
    measured = model.measure(Plan.baseline(model.graph), timed_calls=1)
    assert measured.outputs_equal
    assert measured.before_bytes <= 1.02 * predicted + 4096 or model.graph.unmodeled
    if name in ("LSTM", "GRU"):
        assert model.graph.unmodeled == ()
        assert abs(measured.before_bytes - predicted) <= 0.02 * predicted


def test_kernels_too_large_to_run_here_are_listed_once_per_kind_with_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workspaces, "_MOST_BYTES", 0)
    monkeypatch.setattr(workspaces, "_known", {})
    graph = lt.read((lambda x: torch.fft.rfft(x).abs() + torch.fft.rfft(x * 2).abs(), (torch.randn(8, 8),)))
    assert graph.unmodeled == (
        "op '_fft_r2c' and 1 more (aten._fft_r2c): the workspace of the kernel is not modeled, since it cannot run "
        "here alone",
        "op 'abs_1' and 1 more (aten.abs): the workspace of the kernel is not modeled, since it cannot run here alone",
    )


def test_a_custom_kernel_is_listed_and_never_run_to_measure_it() -> None:
    runs: list[int] = []

    @torch.library.custom_op("lowtide_tests::with_workspace", mutates_args=())
    def with_workspace(x: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return x + torch.ones(4096).sum()

    with_workspace.register_fake(torch.empty_like)
    graph = lt.read((lambda x: with_workspace(x) * 2, (torch.randn(8),)))
    assert graph.unmodeled == (
        "op 'with_workspace' (lowtide_tests.with_workspace): memory that a custom kernel allocates beside its results "
        "is not modeled",
    )
    assert not runs


def test_a_kernel_is_measured_once_per_form_and_leaves_the_random_state_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[object] = []
    run = workspaces._measured
    monkeypatch.setattr(workspaces, "_known", {})
    monkeypatch.setattr(workspaces, "_measured", lambda *given: (measured.append(given), run(*given))[1])
    torch.manual_seed(0)
    state = torch.get_rng_state()
    for _ in range(2):
        lt.read((lambda x: torch.fft.rfft(x).abs() + torch.fft.rfft(x * 2).abs(), (torch.ones(8, 8),)))
    assert len(measured) == 2  # the transform, and the absolute values of complex numbers
    assert torch.equal(torch.get_rng_state(), state)


@torch.library.custom_op("lowtide_tests::with_large_workspace", mutates_args=())
def with_large_workspace(x: torch.Tensor) -> torch.Tensor:
    """Return twice the argument, by way of a megabyte."""
    return x * 2 + torch.zeros(2**18).sum()


with_large_workspace.register_fake(torch.empty_like)


def test_a_measured_peak_above_the_prediction_is_a_warning_with_the_kernel_that_is_not_modeled() -> None:
    model = lowtide.open_model((lambda x: with_large_workspace(x) * 2, (torch.randn(8),)))
    with pytest.warns(UserWarning, match=r"^lowtide: .* above the prediction of .*; not modeled: op 'with_large_work"):
        model.measure(Plan.baseline(model.graph), timed_calls=1)
