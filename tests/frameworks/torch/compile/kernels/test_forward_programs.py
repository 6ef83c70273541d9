"""Programs without gradients under Inductor: their kernels are ordered, and their peaks are predicted."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lowtide.torch
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs
from lowtide.torch import measure

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
"""The warnings are Inductor's own; lowtide's still end a test."""
WIDTH = 64


class Skips(nn.Module):
    """Results that are added long after they are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, value: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for layer in self.layers[:2]:
            value = layer(value).relu()
            kept.append(value)
        for layer in self.layers[2:]:
            value = layer(value).relu() + kept.pop()
        return value


class Branches(nn.Module):
    """Large results, written one after the other, of which only small ones are used later."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ModuleList(nn.Linear(WIDTH, 4 * WIDTH) for _ in range(3))
        self.down = nn.ModuleList(nn.Linear(4 * WIDTH, 8) for _ in range(3))

    def forward(self, value: Tensor) -> Tensor:
        large = [up(value).relu() for up in self.up]
        return torch.cat([down(each) for down, each in zip(self.down, large, strict=True)], -1)


class Cache(nn.Module):
    """A buffer that each call overwrites in part."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("seen", torch.zeros(2048, WIDTH))

    def forward(self, value: Tensor) -> Tensor:
        self.seen[: len(value)] = self.layer(value)
        return self.seen.softmax(-1).sum(0)


def _run(module: nn.Module, **options: Any) -> Any:
    forget_programs()
    return torch.compile(module, backend="lowtide", options=options)


@pytest.mark.parametrize("kind", [Skips, Branches, Cache])
def test_the_measured_peak_is_the_predicted_one_and_no_higher_than_without_lowtide(
    kind: Callable[[], nn.Module],
) -> None:
    torch.manual_seed(0)
    module, batch = kind().eval(), torch.randn(1024, WIDTH)
    with torch.no_grad():
        expected = module(batch)
        alone = measure(torch.compile(module, backend="inductor"), batch, state=[module]).measured_peak_bytes
        torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
        run = _run(module, budget="100%")
        torch.testing.assert_close(run(batch), expected)
        found = measure(run, batch, state=[module])
    (program,) = planned_programs()
    assert program.predicted_peak_bytes["cpu"] == pytest.approx(found.measured_peak_bytes, rel=0.02)
    assert found.measured_peak_bytes <= alone
    assert program.own_peak_bytes == pytest.approx(alone, rel=0.02)
    assert program.result.persistent_bytes["cpu"] == sum(each.nbytes for each in module.state_dict().values())


def test_sizes_of_one_bucket_share_a_prediction_for_the_largest_of_them() -> None:
    torch.manual_seed(0)
    module = Skips().eval()
    forget_programs()
    run = torch.compile(module, backend="lowtide", options={"budget": "100%"}, dynamic=True)
    with torch.no_grad():
        for n_rows in (1024, 700):
            batch = torch.randn(n_rows, WIDTH)
            torch.testing.assert_close(run(batch), module(batch))
            (program,) = planned_programs()
            assert measure(run, batch, state=[module]).measured_peak_bytes <= program.predicted_peak_bytes["cpu"]


def test_a_missed_budget_in_bytes_is_one_warning_about_the_kernels() -> None:
    module, batch = Skips().eval(), torch.randn(1024, WIDTH)
    with torch.no_grad(), pytest.warns(UserWarning, match="no plan found needs less") as caught:
        _run(module, budget="256 KiB")(batch)
    assert len([each for each in caught if "lowtide" in str(each.message)]) == 1
    (program,) = planned_programs()
    assert program.result.shortfall is not None
    assert not program.result.shortfall.is_impossible


def test_explain_shows_kernels_and_makes_no_statement_about_ops_before_fusion() -> None:
    module, batch = Skips().eval(), torch.randn(256, WIDTH)
    with torch.no_grad():
        _run(module)(batch)
    text = str(lowtide.torch.explain())
    assert "Kernels are not planned" not in text
    assert "At least" not in text
    assert "Peak of the unmodified program" in text
