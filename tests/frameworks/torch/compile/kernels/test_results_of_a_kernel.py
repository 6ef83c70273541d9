"""A kernel with several results is one op per result, so that each can be recomputed alone."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.plan import Plan, Run
from lowtide.frameworks.torch.compile.kernels import kernel_partitioner
from lowtide.frameworks.torch.compile.kernels.kernel_program import KernelProgram, join_passes
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


class Residual(nn.Module):
    """A block whose sum and normalization are one kernel: it stores the sum and the normalized value."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)
        self.layers = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, value: Tensor) -> Tensor:
        return value + self.dropout(self.layers(self.norm(value)))


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[KernelProgram, KernelProgram]]:
    """Pairs of joined programs: kernels divided by result, and whole."""
    found: list[tuple[KernelProgram, KernelProgram]] = []

    def join(*given: Any, **_: Any) -> KernelProgram:
        found.append((join_passes(*given, by_value=True), join_passes(*given)))
        return found[-1][0]

    monkeypatch.setattr(kernel_partitioner, "join_passes", join)
    return found


def _train(dropout: float, budget: str) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(*(Residual(64, dropout) for _ in range(4)))
    forget_programs()
    run: Any = torch.compile(module, backend="lowtide", options={"budget": budget}, dynamic=False)
    run(torch.randn(512, 64)).square().mean().backward()


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_first_runs_need_as_much_memory_as_whole_kernels(
    programs: list[tuple[KernelProgram, KernelProgram]], dropout: float
) -> None:
    _train(dropout, "60%")
    divided, whole = programs[0]
    assert divided.graph.n_ops > whole.graph.n_ops
    assert simulate(divided.graph, Plan.baseline(divided.graph)).peak_bytes == (
        simulate(whole.graph, Plan.baseline(whole.graph)).peak_bytes
    )
    assert divided.base_cost == pytest.approx(float(whole.graph.cost.sum()))


def test_one_result_of_a_kernel_is_recomputed_without_the_others(
    programs: list[tuple[KernelProgram, KernelProgram]],
) -> None:
    _train(0.0, "60%")
    (planned,) = planned_programs()
    (divided, _), *_ = programs
    plan = planned.result.plan
    assert plan.graph_fingerprint == divided.graph.fingerprint
    runs = [step.op for step in plan.steps() if isinstance(step, Run) and step.op < divided.turn]
    again = {op for op in runs if runs.count(op) > 1}
    kernels = divided.forward_kernels
    may_run = {op for op in range(divided.turn) if divided.graph.pure[op]}
    assert any({other for other in may_run if kernels[other] == kernels[op]} - again for op in again), (
        "every recomputed kernel is recomputed whole"
    )
