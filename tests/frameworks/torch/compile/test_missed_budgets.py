"""What is said of a budget that is missed can be acted on, and what no plan changes counts in it, too."""

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from lowtide.core.units import parse_bytes
from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from lowtide.frameworks.torch.planning.programs import forget_programs

WIDTH = 64
pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf",  # TorchDynamo looks at it
)


class Blocks(nn.Module):
    """Blocks of layers, with something between each two."""

    def __init__(self, between: Callable[[torch.Tensor], torch.Tensor], n_layers: int = 2) -> None:
        super().__init__()
        self.between = between
        self.blocks = nn.ModuleList(
            nn.Sequential(*(part for _ in range(n_layers) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU())))
            for _ in range(3)
        )

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = self.between(value + self.blocks[0](value))
        value = self.between(value + self.blocks[1](value))
        return (value + self.blocks[2](value)).pow(2).mean()


def _broken(value: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()  # pyright: ignore[reportPrivateUsage]
    return value


@torch.compiler.disable
def _outside(value: torch.Tensor) -> torch.Tensor:
    return value.sin().exp().tanh()


def _compiled(
    between: Callable[[torch.Tensor], torch.Tensor], n_layers: int = 2, **options: Any
) -> tuple[nn.Module, Any]:
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    forget_programs()
    torch.manual_seed(3)
    model = Blocks(between, n_layers).train()
    run = torch.compile(model, backend="lowtide", options={"compiler": "eager", **options}, dynamic=False)
    return model, run


def _peak(model: nn.Module, run: Callable[..., torch.Tensor], batch: torch.Tensor, steps: int = 3) -> int:
    for _ in range(steps):
        model.zero_grad()
        run(batch).backward()
    model.zero_grad()
    return peak_of_call(lambda: run(batch).backward(), torch.device("cpu"))[0] + batch.nbytes


def test_the_budgets_that_a_warning_names_are_met_without_one() -> None:
    """Bytes with parameters, and a part of what PyTorch takes alone, which is what budgets in percent are of."""
    batch = torch.randn(256, WIDTH)
    with pytest.warns(UserWarning, match=r'lowest peak found is .*, met by budget="\d+ B" .* or "\d+\.\d\d%"$') as said:
        _peak(*_compiled(torch.relu, budget="10%"), batch)
    (named,) = [str(each.message) for each in said if "lowtide" in str(each.message)]
    found = re.search(r'budget="(\d+ B)" \(with parameters\) or "(\d+\.\d\d%)"$', named)
    assert found is not None
    for budget in found.groups():
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="lowtide")
            _peak(*_compiled(torch.relu, budget=budget), batch)


def test_bytes_below_the_parameters_are_the_least_peak_of_all_graphs() -> None:
    """An impossible budget needs no more than one that is met."""
    batch = torch.randn(512, WIDTH)
    met = _peak(*_compiled(_broken, n_layers=4, budget="40%"), batch)
    with pytest.warns(
        UserWarning,
        match=r'graphs need .* more than their budget .*; the lowest peak found is .* met by budget="\d+ B"',
    ):
        assert _peak(*_compiled(_broken, n_layers=4, budget="1 B"), batch) <= met


def test_what_runs_outside_of_graphs_counts_in_the_budget(caplog: pytest.LogCaptureFixture) -> None:
    """What eager PyTorch saves between two graphs is predicted, said, and left over by the graphs."""
    batch = torch.randn(512, WIDTH)
    free = _peak(*_compiled(_outside, budget="100%"), batch)
    predicted = re.search(r"together (\S+ \S+) predicted .*, (\S+ \S+) kept outside of graphs", caplog.text)
    assert predicted is not None
    assert parse_bytes(predicted[1]) == pytest.approx(free, rel=0.03)
    assert parse_bytes(predicted[2]) == 4 * batch.nbytes
    assert _peak(*_compiled(_outside, budget="75%"), batch) <= 0.75 * free


def test_graphs_that_join_later_share_the_budget() -> None:
    """A batch of another shape is compiled anew, after the budget was divided; its graphs are held to it as well."""
    model, run = _compiled(_broken, budget="100%")
    large = torch.randn(768, WIDTH)
    alone = _peak(model, run, large)
    parameters = sum(each.nbytes for each in model.parameters())
    allowed = int(0.6 * alone)
    model, run = _compiled(_broken, budget=f"{allowed + parameters} B")
    _peak(model, run, torch.randn(128, WIDTH))
    assert _peak(model, run, large, steps=5) <= allowed


@pytest.mark.usefixtures("quick_inductor")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # Inductor's own
@pytest.mark.parametrize("compiler", ["eager", "inductor"])
def test_gradients_inside_of_the_program_miss_a_percentage_with_a_warning(compiler: str) -> None:
    """Gradients of every sample are results of a program without a backward pass of its own."""
    model = nn.Linear(WIDTH, WIDTH)
    of_all = torch.func.grad(lambda weight, row: (row @ weight).tanh().sum())
    of_each = torch.func.vmap(of_all, in_dims=(None, 0))
    forget_programs()
    run = torch.compile(of_each, backend="lowtide", options={"compiler": compiler, "budget": "10%"})
    with pytest.warns(UserWarning, match=r"lowtide: .* budget.*the lowest peak found is"):
        run(model.weight.detach(), torch.randn(64, WIDTH))
