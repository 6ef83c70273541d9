"""Kinds of programs under plans of kernels: sizes that change, several graphs, and those without such a plan."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lowtide.torch
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs
from lowtide.torch import measure
from tests.examples import SHARE

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),  # TorchDynamo reads it
]
"""The warnings are Inductor's own; lowtide's still end a test."""
WIDTH = 96


def _as_is(value: Tensor) -> Tensor:
    return value


def _broken(value: Tensor) -> Tensor:
    torch._dynamo.graph_break()  # pyright: ignore[reportPrivateUsage]
    return value


class Blocks(nn.Module):
    """Two halves of blocks with something between them."""

    def __init__(self, between: Callable[[Tensor], Tensor] = _as_is) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = self._half(), self._half()
        self.between = between

    @staticmethod
    def _half() -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU())

    def forward(self, value: Tensor) -> Tensor:
        value = self.between(self.first(value))
        return self.second(value).square().mean()


def _gradients(module: nn.Module, run: Any, batch: Tensor) -> list[Tensor]:
    module.zero_grad()
    run(batch).backward()
    return [each.grad.clone() for each in module.parameters() if each.grad is not None]


def _compiled(module: nn.Module, *, dynamic: bool = False, **options: Any) -> Any:
    forget_programs()
    return torch.compile(module, backend="lowtide", options=options, dynamic=dynamic)


def _peak(module: nn.Module, run: Any, batch: Tensor) -> int:
    return measure(lambda: run(batch).backward(), state=[module]).measured_peak_bytes


def test_sizes_of_one_bucket_share_a_plan_for_the_largest_of_them() -> None:
    """Gradients equal those of eager at each size, and no size needs more than the largest."""
    module = Blocks()
    run = _compiled(module, dynamic=True, budget="80%")
    for n_rows in (512, 300):
        batch = torch.randn(n_rows, WIDTH)
        for one, other in zip(_gradients(module, run, batch), _gradients(module, module, batch), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
        (program,) = planned_programs()
        assert program.result.reruns
        assert "turn" in program.graph.op_kinds
        assert _peak(module, run, batch) <= program.predicted_peak_bytes["cpu"]


@pytest.mark.skipif(SHARE < 1, reason="recompiles two graphs until they fit; make test-all")
def test_graphs_that_share_a_budget_recompute_kernels() -> None:
    """The step of two graphs meets the budget that its peak without a plan exceeds."""
    module, batch = Blocks(_broken), torch.randn(512, WIDTH)
    alone = _compiled(module, budget=None)
    _gradients(module, alone, batch)
    budget = int(0.8 * _peak(module, alone, batch))
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    persistent = sum(each.nbytes for each in module.parameters())
    run = _compiled(module, budget=f"{budget + persistent} B")
    for _ in range(3):
        found = _gradients(module, run, batch)
    programs = planned_programs()
    assert any(each.result.reruns and "turn" in each.graph.op_kinds for each in programs)
    for one, other in zip(found, _gradients(module, module, batch), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    assert _peak(module, run, batch) <= budget


def test_explain_shows_the_kernels_of_a_program_without_a_budget() -> None:
    module, batch = Blocks(), torch.randn(64, WIDTH)
    _gradients(module, _compiled(module, budget=None), batch)
    (planned,) = planned_programs()
    ((graph, result),) = planned.kernels
    assert "turn" in graph.op_kinds
    (peak,) = result.peak_bytes.values()
    assert peak == pytest.approx(max(planned.kernel_peaks), rel=0.02)
    assert "before Inductor fuses" not in str(lowtide.torch.explain())
