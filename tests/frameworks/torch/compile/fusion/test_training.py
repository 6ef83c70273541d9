"""Training through Inductor under a budget: the same gradients, in the memory that was predicted."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._functorch import config as functorch_config
from torch._inductor import config
from torch.profiler import ProfilerActivity, profile

import lowtide.torch
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks
from lowtide.frameworks.torch.compile.split import split
from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs

LAYERS, WIDTH = 3, 64

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
"""The warnings are Inductor's own; lowtide's still end a test."""


class Layers(nn.Module):
    """Linear layers with dropout, and the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            value = nn.functional.dropout(nn.functional.gelu(layer(value)), 0.2)
        return value.pow(2).mean()


@pytest.fixture(name="model")
def model_fixture() -> Iterator[nn.Module]:
    """Give a model; what Inductor draws are PyTorch's own random numbers."""
    forget_programs()
    torch.manual_seed(3)
    with config.patch(fallback_random=True):
        yield Layers().train()


def _gradients(model: nn.Module, run: Callable[..., Any], batch: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    torch.manual_seed(5)
    run(batch).backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def _products(run: Callable[[], object]) -> int:
    """Return the number of matrix products that a call runs."""
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiled:  # without it, 2.11 warns
        run()
    return sum(event.count for event in profiled.key_averages() if event.key in {"aten::mm", "aten::addmm"})


def test_a_budget_is_met_with_the_gradients_of_eager(model: nn.Module) -> None:
    """The compiled step runs the products of the plan, and its measured peak is the predicted one."""
    batch = torch.randn(512, WIDTH)
    compiled = torch.compile(model, backend="lowtide", options={"budget": "70%"})
    for one, other in zip(_gradients(model, compiled, batch), _gradients(model, model, batch), strict=True):
        torch.testing.assert_close(one, other)
    (program,) = planned_programs()
    result = program.result
    assert result.shortfall is None
    again = sum("mm" in program.graph.op_kinds[op] for op in result.plan.order().tolist())
    assert again > sum("mm" in kind for kind in program.graph.op_kinds)
    assert _products(lambda: _gradients(model, compiled, batch)) == again

    _gradients(model, compiled, batch)
    model.zero_grad()
    peak, _ = peak_of_call(lambda: compiled(batch).backward(), torch.device("cpu"))
    predicted = program.predicted_peak_bytes["cpu"]
    assert 0.9 * predicted <= peak + batch.nbytes <= predicted


def test_pytorch_s_own_backend_follows_plans_within_the_context(model: nn.Module) -> None:
    """What is compiled within is planned, with random draws never run again under PyTorch's own budget either."""
    batch = torch.randn(512, WIDTH)
    compiled = torch.compile(model)
    with lowtide.torch.inductor(budget="95%"), functorch_config.patch(activation_memory_budget=0.5):
        found = _gradients(model, compiled, batch)
    for one, other in zip(found, _gradients(model, model, batch), strict=True):
        torch.testing.assert_close(one, other)
    (program,) = planned_programs()
    assert program.result.shortfall is None


class Images(nn.Module):
    """Convolutions with a residual connection each, normalized, and the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(LAYERS))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            value = value + nn.functional.relu(norm(layer(value)))
        return value.pow(2).mean()


class Tied(nn.Module):
    """An embedding whose weight also makes the scores, so that its gradient is a sum of an early and a late part."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        value = self.embedding(tokens)
        for layer in self.layers:
            value = value + nn.functional.gelu(layer(value))
        scores = value @ self.embedding.weight.T
        return nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


@pytest.mark.share_of_cases
@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("make", "batch"),
    [
        (Images, torch.sin(torch.arange(8 * 16 * 24 * 24.0)).reshape(8, 16, 24, 24)),
        (Tied, torch.arange(2048).reshape(16, 128) % 100),
    ],
    ids=["convolutions", "tied embedding"],
)
def test_after_fusion_the_budget_still_holds(make: Callable[[], nn.Module], batch: torch.Tensor) -> None:
    """Kernels are fused and ordered within the budget, and the real peak is what is then predicted."""
    model = make().train()
    unmodified = torch.compile(model, backend="lowtide")
    _gradients(model, unmodified, batch)
    (program,) = planned_programs()
    budget = int(0.6 * program.predicted_peak_bytes["cpu"])
    held = sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    compiled = torch.compile(model, backend="lowtide", options={"budget": budget + held})
    found = _gradients(model, compiled, batch)
    for one, other in zip(found, _gradients(model, model, batch), strict=True):
        torch.testing.assert_close(one, other)
    program = planned_programs()[-1]
    assert program.result.shortfall is None
    predicted = program.predicted_peak_bytes["cpu"]
    assert predicted <= budget
    model.zero_grad()
    peak, _ = peak_of_call(lambda: compiled(batch).backward(), torch.device("cpu"))
    assert 0.9 * predicted <= peak + batch.nbytes <= 1.03 * predicted


class Scores(nn.Module):
    """Rows normalized by their largest value and their sum: loops with inner levels and one without, in one kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4 * WIDTH, bias=False)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        scores = self.head(nn.functional.gelu(self.first(value)))
        below = scores - scores.amax(-1, keepdim=True).detach()
        logarithms = below - below.exp().sum(-1, keepdim=True).log()
        return (logarithms.softmax(0) @ torch.ones(4 * WIDTH, 4)).sum()


@pytest.mark.usefixtures("model")
def test_what_goes_between_loops_that_share_outer_levels_counts() -> None:
    """Inductor stores it where one of the loops has no inner level, and makes no result over what others read."""
    model, batch = Scores(), torch.randn(256, WIDTH)
    compiled = torch.compile(model, backend="lowtide", options={"budget": "95%"})
    _gradients(model, compiled, batch)
    model.zero_grad()
    peak, _ = peak_of_call(lambda: compiled(batch).backward(), torch.device("cpu"))
    (program,) = planned_programs()
    assert program.predicted_peak_bytes["cpu"] == pytest.approx(peak + batch.nbytes, rel=0.01)


class Patches(nn.Module):
    """Small images under many filters, whose weights weigh more than all else."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(32, 32, 5, padding=2) for _ in range(3))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            value = nn.functional.gelu(layer(value))
        return value.pow(2).mean()


@pytest.mark.usefixtures("model")
def test_weights_that_inductor_saves_in_a_layout_of_its_own_count() -> None:
    """Inductor's copies of weights, made for convolutions, live until the backward pass has read them."""
    model, batch = Patches(), torch.randn(2, 32, 6, 6)
    _gradients(model, alone := torch.compile(model), batch)
    model.zero_grad()
    own, _ = peak_of_call(lambda: alone(batch).backward(), torch.device("cpu"))
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    compiled = torch.compile(model, backend="lowtide", options={"budget": "100%"})
    _gradients(model, compiled, batch)
    (program,) = planned_programs()
    assert program.own_peak_bytes == pytest.approx(own + batch.nbytes, rel=0.06)
    model.zero_grad()
    peak, _ = peak_of_call(lambda: compiled(batch).backward(), torch.device("cpu"))
    assert peak <= own


class Vision(nn.Module):
    """Wide patches, whose weights' gradient takes much at the very end, and blocks before."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 64, 16, stride=16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(2))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        value = self.patches(images).flatten(2).transpose(1, 2)
        for block in self.blocks:
            value = value + block(value)
        return value.pow(2).mean()


@pytest.mark.usefixtures("model")
def test_runs_that_only_a_later_one_stands_in_for_save_nothing() -> None:
    """Gradients that are made at the end leave nothing behind where they would have been made first.

    From PyTorch 2.15 on, Inductor may convert the weights of a backward pass to channels last, which takes more.
    """
    model, batch = Vision(), torch.randn(4, 3, 64, 64)
    is_converted = torch.__version__ >= (2, 15)
    compiled = torch.compile(model, backend="lowtide", options={"budget": "85%" if is_converted else "75%"})
    with config.patch({"layout_optimization": False} if is_converted else {}):
        _gradients(model, compiled, batch)
    (program,) = planned_programs()
    assert program.result.reruns
    model.zero_grad()
    peak, _ = peak_of_call(lambda: compiled(batch).backward(), torch.device("cpu"))
    assert peak + batch.nbytes <= program.predicted_peak_bytes["cpu"]


def test_percent_is_of_what_inductor_needs_alone_and_an_impossible_budget_needs_no_more(model: nn.Module) -> None:
    """What Inductor needs alone is known to a percent, without a run; a budget that no plan meets is one warning."""
    batch = torch.randn(512, WIDTH)
    _gradients(model, alone := torch.compile(model), batch)
    model.zero_grad()
    own, _ = peak_of_call(lambda: alone(batch).backward(), torch.device("cpu"))
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    compiled = torch.compile(model, backend="lowtide", options={"budget": "10%"})
    with pytest.warns(UserWarning, match=r"may need .* more than its budget \(Inductor alone needs .*\)") as said:
        _gradients(model, compiled, batch)
    assert any("no plan found needs less" in str(warning.message) for warning in said)
    assert len([warning for warning in said if "lowtide" in str(warning.message)]) == 1
    (program,) = planned_programs()
    assert program.own_peak_bytes == pytest.approx(own + batch.nbytes, rel=0.01)
    model.zero_grad()
    peak, _ = peak_of_call(lambda: compiled(batch).backward(), torch.device("cpu"))
    assert peak <= own


def test_kernels_that_need_more_than_the_budget_after_fusion_are_said_so(model: nn.Module) -> None:
    """A plan that reruns something is compiled as it says, and its kernels are held against the same budget."""
    compiled = torch.compile(model, backend="lowtide", options={"budget": "70%"})
    _gradients(model, compiled, torch.randn(512, WIDTH))
    (program,) = planned_programs()
    forward, backward = split(program.module, program.source, 1)
    for allowed_less in (0, program.result.baseline_peak_bytes["cpu"]):
        peaks = FusedPeaks()
        peaks.expect(program, forward, backward, 1)
        names = [node.name for node in forward.graph.find_nodes(op="placeholder")]
        if allowed_less:
            with pytest.warns(UserWarning, match=r"forward \(.*\) may need .* more than its budget"):
                peaks.check(names, allowed_less)
        else:
            peaks.check(names, 0)
