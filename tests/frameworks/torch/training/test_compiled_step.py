"""A step compiled by Inductor computes what eager does, to rounding, within the predicted memory."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch import nn
from torch.utils.checkpoint import checkpoint

import lowtide.torch as lt
from lowtide.core.errors import FingerprintError, UnsupportedError, UsageError
from lowtide.frameworks.torch.capture.tracing import GET_STATE, SET_STATE
from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from lowtide.frameworks.torch.training.repeated_draws import repeated_draws

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning"),  # Inductor's own
]
N_STEPS = 4
WIDTH = 64


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


def squares(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Return the mean square of what a model makes of rows."""
    return model(inputs).square().mean()


def test_gradients_of_several_calls_add_up_and_end_in_their_updates() -> None:
    """The largest update comes last: it fits only where the other gradients, which waited in `.grad`, are gone."""

    def run(compiled: bool) -> tuple[list[torch.Tensor], int, Any]:
        torch.manual_seed(1)
        later = [part for _ in range(2) for part in (nn.GELU(), nn.Linear(WIDTH, WIDTH))]
        model = nn.Sequential(nn.Linear(6 * WIDTH, WIDTH), *later)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        batches = [torch.randn(4, 6 * WIDTH) for _ in range(4)]
        step: Any = lt.TrainingStep(model, squares, optimizer, accumulate=2)
        if compiled:
            step = lt.training_step(model, squares, optimizer, batches[0], compiler="inductor", accumulate=2)
        losses = [step(given) for given in batches[:2]]
        peak, more = peak_of_call(lambda: [step(given) for given in batches[2:]], torch.device("cpu"))
        parameters = [parameter.detach() for parameter in model.parameters()]
        return [*losses, *more, *parameters], peak + batches[-1].nbytes, step

    expected, _, _ = run(False)
    found, peak, step = run(True)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert peak <= step.result.peak_bytes["cpu"] + 4096


class Block(nn.Module):
    """Attention over the rows of a batch and two layers, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(self.first(rows)).unflatten(-1, (3, 4, WIDTH // 4)).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(query @ key.transpose(-1, -2) / 4, -1)
        rows = rows + self.out((weights @ value).transpose(1, 2).flatten(2))
        return rows + self.mlp(self.second(rows))


def make_transformer() -> nn.Module:
    """Return a small transformer with fixed random weights, in training mode."""
    torch.manual_seed(1)
    rows = nn.Unflatten(0, (4, 64))
    return nn.Sequential(rows, Block(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4), nn.Flatten(0, 1)).train()


def test_what_the_plan_runs_again_runs_again_under_inductor_within_the_predicted_peak() -> None:
    """The update is the fused one of the plain step, spelled out for Inductor; state dicts know nothing of that."""

    def run(compiled: bool) -> tuple[list[torch.Tensor], torch.optim.Optimizer, Any]:
        model = make_transformer()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
        step: Any = lt.TrainingStep(model, classify, optimizer)
        if compiled:
            step = lt.training_step(model, classify, optimizer, batch(0), compiler="inductor", budget="60%")
        torch.manual_seed(3)
        found = [step(*batch(seed)) for seed in range(N_STEPS)]
        return [*found, *(parameter.detach().clone() for parameter in model.parameters())], optimizer, step

    expected, plain, _ = run(False)
    found, optimizer, step = run(True)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(optimizer.state_dict(), plain.state_dict(), rtol=1e-3, atol=1e-4)
    assert step.result.reruns > 0
    given = batch(0)
    peak, _ = peak_of_call(lambda: step(*given), torch.device("cpu"))
    measured, predicted = peak + sum(tensor.nbytes for tensor in given), step.result.peak_bytes["cpu"]
    assert 0.99 * predicted <= measured <= predicted <= 0.6 * step.result.baseline_peak_bytes["cpu"]


def test_a_compiler_that_does_not_exist_is_refused_in_one_line() -> None:
    model = make_model()
    plain = torch.optim.AdamW(model.parameters())
    with pytest.raises(UsageError, match="unknown compiler"):
        lt.training_step(model, classify, plain, batch(0), compiler="gcc")  # type: ignore[arg-type]


class Images(nn.Module):
    """Three convolutions with norms, and their loss."""

    def __init__(self) -> None:
        super().__init__()
        layers = [(nn.Conv2d(before, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()) for before in (3, 16, 16)]
        self.layers = nn.Sequential(*(layer for layers_ in layers for layer in layers_))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images).square().mean()


def test_compiled_convolutions_measure_and_explain_the_peak_of_their_kernels_and_follow_their_saved_plan(
    tmp_path: Path,
) -> None:
    images = torch.randn(8, 3, 16, 16)

    def made(**options: Any) -> Any:
        torch.manual_seed(0)
        model = Images().train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return lt.training_step(model, None, optimizer, (images,), compiler="inductor", budget="80%", **options)

    step = made()
    predicted = step.result.peak_bytes["cpu"]
    assert step.result.reruns > 0
    assert step.result.shortfall is None
    measured = step.measure()
    assert 0.94 * predicted <= measured.after_bytes <= predicted  # scratch memory of convolutions is an upper bound
    (explained,) = lt.explain(step).programs
    assert explained.planned[0].peak_bytes == pytest.approx(predicted, rel=0.1)  # in 2.11, fusion saves 8 % more
    assert any(str(each.op_kind).startswith("aten.convolution") for each in explained.planned[0].holders)
    step.save_plans(tmp_path / "plans")
    again = made(plan=tmp_path / "plans")
    assert again.result.scheduler == "plan file"
    assert again.result.peak_bytes == step.result.peak_bytes
    assert again.result.reruns == step.result.reruns
    with pytest.raises(FingerprintError, match="plan it again"):
        made(plan=tmp_path)


class Checkpointed(nn.Module):
    """A layer with dropout in a checkpointed region."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.5))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows + checkpoint(self.layers, rows, use_reentrant=False)


def test_a_compiled_step_draws_once_what_checkpoints_repeat() -> None:
    """Inductor would repeat the draws from another random state, and gradients would be those of other masks."""

    def run(compiled: bool) -> list[torch.Tensor]:
        torch.manual_seed(1)
        model = nn.Sequential(Checkpointed(), Checkpointed(), nn.Linear(WIDTH, 4)).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        step: Any = lt.TrainingStep(model, classify, optimizer)
        if compiled:
            step = lt.training_step(model, classify, optimizer, batch(0), compiler="inductor")
        torch.manual_seed(3)
        losses = [step(*batch(seed)) for seed in range(N_STEPS)]
        return [*losses, *(parameter.detach() for parameter in model.parameters()), torch.get_rng_state()]

    torch.testing.assert_close(run(True), run(False), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rate", "n_regions"), [(0.5, 2), (0.9, 1)])
def test_a_region_that_does_not_repeat_its_draws_is_refused(rate: float, n_regions: int) -> None:
    """It draws by another rate, or not at all."""
    graph = torch.fx.Graph()
    state = graph.call_function(GET_STATE)
    for each in (0.9, rate)[:n_regions]:
        drawn = graph.call_function(torch.ops.aten.bernoulli.p, (graph.placeholder("rows"), each))
        drawn.meta["val"] = torch.empty(2)
        graph.call_function(SET_STATE, (state,))
    with pytest.raises(UnsupportedError, match="checkpointed region"):
        repeated_draws(graph)


def test_a_step_whose_kernels_are_offloaded_trains_as_in_eager_within_its_predicted_peak() -> None:
    rows = torch.randn(1024, WIDTH)

    def run(compiled: bool) -> tuple[Any, Any]:
        torch.manual_seed(1)
        model = nn.Sequential(*(part for _ in range(6) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU())))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        options: Any = {"budget": "50%", "allow": ("share", "recompute", "offload"), "host_bandwidth": "2 GB/s"}
        if compiled:
            step = lt.training_step(model, mean_of_squares, optimizer, (rows,), compiler="inductor", **options)
        else:
            step = lt.TrainingStep(model, mean_of_squares, optimizer)
        return step, [step(rows).detach() for _ in range(N_STEPS)]

    def mean_of_squares(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        return model(rows).pow(2).mean()

    (_, losses), (step, found) = run(False), run(True)
    torch.testing.assert_close(found, losses)
    assert step.result.transfers.bytes_out > 0
    (name,) = step.result.peak_bytes.keys() - {"host"}
    peak, _ = peak_of_call(lambda: step(rows), torch.device(name))
    assert peak + rows.nbytes <= 1.02 * step.result.peak_bytes[name]
