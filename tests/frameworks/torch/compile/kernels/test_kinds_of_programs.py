"""Kinds of programs under plans of kernels: sizes that change, and those without such a plan."""

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
WIDTH = 96


class Blocks(nn.Sequential):
    """Blocks of a product, a normalization and an activation."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        parts = ([nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU()] for _ in range(4))
        super().__init__(*(part for some in parts for part in some))

    def forward(self, value: Tensor) -> Tensor:
        return super().forward(value).square().mean()


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


def test_explain_names_the_reason_why_kernels_are_not_planned() -> None:
    module, batch = Blocks(), torch.randn(64, WIDTH)
    _gradients(module, _compiled(module, budget=None), batch)
    assert "Kernels are not planned, because without a budget" in str(lowtide.torch.explain())
