"""A program of several graphs has one budget: after a step what each keeps is known, and all are planned anew."""

import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs

WIDTH = 64
pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf",  # TorchDynamo looks at it
)


class Blocks(nn.Module):
    """Layers in blocks between which TorchDynamo breaks the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(*(part for _ in range(2) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.1))))
            for _ in range(3)
        )

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = value + self.blocks[0](value)
        torch._dynamo.graph_break()  # pyright: ignore[reportPrivateUsage]
        value = value + self.blocks[1](value)
        torch._dynamo.graph_break()  # pyright: ignore[reportPrivateUsage]
        return (value + self.blocks[2](value)).pow(2).mean()


@pytest.fixture(name="model")
def model_fixture() -> nn.Module:
    """Give a model with random weights."""
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    forget_programs()
    torch.manual_seed(3)
    return Blocks().train()


def _step(model: nn.Module, run: Callable[..., torch.Tensor], batch: torch.Tensor) -> list[Any]:
    model.zero_grad()
    torch.manual_seed(5)
    loss = run(batch)
    loss.backward()
    return [loss.detach(), *(parameter.grad for parameter in model.parameters()), torch.get_rng_state()]


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return lowtide's own warnings in the log."""
    records = [record for record in caplog.records if record.name == "lowtide" and record.levelno == logging.WARNING]
    return [record.getMessage() for record in records]


def _peak(model: nn.Module, run: Callable[..., torch.Tensor], batch: torch.Tensor) -> int:
    model.zero_grad()
    return peak_of_call(lambda: run(batch).backward(), torch.device("cpu"))[0]


@pytest.mark.filterwarnings("error:lowtide")
def test_graphs_of_scalars_that_miss_a_percentage_are_no_warning() -> None:
    """A percentage of a few bytes, between graph breaks, is none that anybody asked for."""
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    weight = torch.ones(4, requires_grad=True)

    def function(weight: torch.Tensor) -> torch.Tensor:
        value = weight.sin().exp()
        torch._dynamo.graph_break()  # pyright: ignore[reportPrivateUsage]
        return value.cos().exp().sum()

    run = torch.compile(function, backend="lowtide", options={"compiler": "eager", "budget": "10%"})
    for _ in range(3):
        run(weight).backward()


def test_graphs_share_a_budget_after_the_first_step_with_the_bits_of_eager(
    model: nn.Module, digest: Callable[[Any], str], caplog: pytest.LogCaptureFixture
) -> None:
    """50 % of what all graphs take alone is met by all together, and one line a step says so without being asked."""
    batch = torch.randn(512, WIDTH)
    twin = copy.deepcopy(model)
    alone = torch.compile(model, backend="aot_eager")
    _step(model, alone, batch)
    needed = _peak(model, alone, batch)
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]

    run = torch.compile(twin, backend="lowtide", options={"compiler": "eager", "budget": "50%"}, dynamic=True)
    costs: list[float] = []
    for _ in range(3):
        assert digest(_step(twin, run, batch)) == digest(_step(model, model, batch))
        costs.append(sum(program.result.extra_cost for program in planned_programs()))
    lines = _warnings(caplog)
    assert len(lines) == 2
    assert len(planned_programs()) == len(twin.blocks)  # type: ignore[arg-type]
    assert costs[-1] < costs[0]  # alone, each misses 50 % of its own, and had the plan of its least peak
    assert "3 graphs planned" in lines[0]
    assert "TorchDynamo skipped 0 frames" in lines[0]
    assert _peak(twin, run, batch) <= 0.5 * needed


def test_a_program_that_misses_its_budget_is_one_warning_of_all_its_graphs(model: nn.Module) -> None:
    """What each graph would miss of the whole budget is not said: it is known after the second step what all miss."""
    run = torch.compile(model, backend="lowtide", options={"compiler": "eager", "budget": "5%"})

    def three_steps() -> None:
        for _ in range(3):
            _step(model, run, torch.randn(64, WIDTH))

    with pytest.warns(UserWarning, match=r"3 graphs need .* together, .* more than their budget") as said:
        three_steps()
    assert len([warning for warning in said if "lowtide" in str(warning.message)]) == 1


class Halves(nn.Module):
    """Two halves between which TorchDynamo breaks the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.halves = nn.ModuleList(
            nn.Sequential(*(part for _ in range(3) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU()))) for _ in range(2)
        )

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = self.halves[0](value)
        torch._dynamo.graph_break()  # pyright: ignore[reportPrivateUsage]
        return self.halves[1](value).pow(2).mean()


@pytest.mark.usefixtures("quick_inductor")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_under_inductor_graphs_share_a_budget_too(caplog: pytest.LogCaptureFixture) -> None:
    """Each fits bytes alone and both do not; planned anew, they do, with the gradients of eager."""
    forget_programs()
    torch.manual_seed(3)
    model, batch = Halves(), torch.randn(512, WIDTH)
    plain = _step(model, model, batch)
    allowed = 1_300_000
    weights = sum(parameter.nbytes for parameter in model.parameters())
    run = torch.compile(model, backend="lowtide", options={"budget": allowed + weights})
    for _ in range(2):
        for one, other in zip(_step(model, run, batch), plain, strict=True):
            torch.testing.assert_close(one, other)
    lines = _warnings(caplog)
    assert len(lines) == 2
    assert _peak(model, run, batch) + batch.nbytes <= allowed


def test_evaluation_and_graphs_of_scalars_are_no_warning_under_a_percentage(model: nn.Module) -> None:
    """A forward pass alone cannot halve its memory, nor can a graph of two bytes; whoever says percent knows."""
    options = {"compiler": "eager", "budget": "1%"}
    with torch.no_grad():
        torch.compile(model.eval(), backend="lowtide", options=options)(torch.randn(8, WIDTH))
    scale = torch.ones((), requires_grad=True)
    torch.compile(lambda value: value * 2, backend="lowtide", options=options)(scale).backward()


class Caught(nn.Module):
    """A layer with a graph break inside `try`, where TorchDynamo cannot resume."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        try:
            torch._dynamo.graph_break()  # pyright: ignore[reportPrivateUsage]
            return self.layer(value).sum()
        except ValueError:
            return value.sum()


def test_a_model_that_torchdynamo_skips_is_one_warning() -> None:
    """No budget has any effect there, and whoever set one is told so, with the frame and the reason.

    So it is after TorchDynamo was set back, whatever was compiled before.
    """
    torch.compile(torch.sin, backend="lowtide", options={"compiler": "eager"})(torch.ones(2))
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    run = torch.compile(Caught(), backend="lowtide", options={"compiler": "eager", "budget": "50%"})

    def two_steps() -> None:
        for _ in range(2):
            run(torch.randn(4, WIDTH)).backward()

    with pytest.warns(UserWarning, match=r"skipped forward \(test_program_of_graphs.py:\d+\).*graph_break") as said:
        two_steps()
    assert len([warning for warning in said if "lowtide" in str(warning.message)]) == 1


def test_a_module_of_pytorchs_own_that_is_compiled_in_place_is_planned_whole_and_reported(
    digest: Callable[[Any], str], caplog: pytest.LogCaptureFixture
) -> None:
    """As by `torch.compile`, though TorchDynamo looks at no frame of such a module by itself."""
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    forget_programs()
    torch.manual_seed(3)
    model = nn.Sequential(*(part for _ in range(6) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU())), nn.Flatten(0))
    twin, batch = copy.deepcopy(model), torch.randn(512, WIDTH)
    twin.compile(backend="lowtide", options={"compiler": "eager", "budget": "60%"})

    def trained(module: nn.Module) -> str:
        return digest(_step(module, lambda value: module(value).mean(), batch))

    for _ in range(2):
        assert trained(twin) == trained(model)
    (line,) = _warnings(caplog)
    assert "1 graph planned, 1 call" in line
    (program,) = planned_programs()
    assert program.own_peak_bytes is not None
    assert program.predicted_peak_bytes["cpu"] <= 0.6 * program.own_peak_bytes


class Scaled(nn.Module):
    """Two graphs, the second of which reads a Python number, which is an input under dynamic sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.scale = nn.Linear(WIDTH, WIDTH), nn.GroupNorm(2, 4), 0.3

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = self.norm(self.layer(value))
        torch._dynamo.graph_break()  # pyright: ignore[reportPrivateUsage]
        return self.layer(value.tanh() * self.scale).exp().sum()


@pytest.mark.filterwarnings("ignore:lowtide. 2 graphs need")
def test_graphs_that_take_numbers_share_a_budget_under_dynamic_sizes() -> None:
    """Graphs of dynamic sizes with numbers and group norms are planned again, too."""
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    forget_programs()
    model = Scaled()
    options = {"compiler": "eager", "budget": "50%", "progress": False}
    run = torch.compile(model, backend="lowtide", dynamic=True, options=options)
    for seed in range(3):
        torch.manual_seed(seed)
        batch = torch.randn(8, 4, WIDTH)
        pairs = zip(_step(model, run, batch), _step(model, model, batch), strict=True)
        assert all(torch.equal(found, expected) for found, expected in pairs)
