"""Plans of Inductor's kernels: they meet budgets that plans of ops miss, and change no result beyond rounding."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import lowtide.torch
from lowtide.frameworks.torch.planning.planned_program import PlannedModule
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs
from lowtide.torch import measure

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
"""The warnings are Inductor's own; lowtide's still end a test."""


class Blocks(nn.Module):
    """Blocks of a product, a normalization, an activation and dropout; the user checkpoints each of them."""

    def __init__(self, n_blocks: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        parts = (
            nn.Sequential(nn.Linear(96, 96), nn.LayerNorm(96), nn.GELU(), nn.Dropout(dropout)) for _ in range(n_blocks)
        )
        self.blocks = nn.ModuleList(parts)

    def forward(self, value: Tensor) -> Tensor:
        for block in self.blocks:
            value = checkpoint(block, value, use_reentrant=False)
        return value.square().mean()


class Tokens(nn.Module):
    """A head over many classes, whose float32 logits exist before fusion only."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4096, 64)
        self.layers = nn.Sequential(*(nn.Sequential(nn.RMSNorm(64), nn.Linear(64, 64), nn.SiLU()) for _ in range(3)))

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.layers(self.embedding(tokens)) @ self.embedding.weight.T
        return nn.functional.cross_entropy(logits.float(), tokens)


def _gradients(module: nn.Module, run: Callable[..., Any], batch: Tensor) -> list[Tensor]:
    module.zero_grad()
    torch.manual_seed(1)
    run(batch).backward()
    return [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]


def _compiled(module: nn.Module, **options: Any) -> Any:
    forget_programs()
    return torch.compile(module, backend="lowtide", options=options, dynamic=False)


def _only_program() -> PlannedModule:
    (program,) = planned_programs()
    return program


def test_checkpointed_blocks_fit_and_train_as_without_a_plan() -> None:
    """The peak is the measured one, and gradients are equal up to rounding."""
    torch.manual_seed(0)
    module, batch = Blocks(), torch.randn(768, 96)
    expected = _gradients(module, module, batch)
    run = _compiled(module, budget="70%")
    found = _gradients(module, run, batch)
    program = _only_program()
    assert program.result.reruns
    assert program.result.shortfall is None
    peak = program.predicted_peak_bytes["cpu"]
    assert peak <= (program.result.budget.allowed["cpu"] or 0)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    measured = measure(lambda: run(batch).backward(), state=[module])
    assert measured.measured_peak_bytes <= 1.02 * peak


def test_logits_in_float32_are_no_floor() -> None:
    """Before fusion, three results of the size of the float32 logits are live at once. No kernel stores them."""
    torch.manual_seed(0)
    module, batch = Tokens().to(torch.bfloat16), torch.randint(0, 4096, (1024,))
    _compiled(module, budget="90%")(batch).backward()
    program = _only_program()
    logits = 1024 * 4096 * 4
    assert program.predicted_peak_bytes["cpu"] < 2 * logits


def test_a_mask_is_drawn_once() -> None:
    """The gradient of the first block is that of the loss with the mask that the forward pass drew."""
    torch.manual_seed(0)
    module, batch = Blocks(3, dropout=0.5), torch.randn(256, 96, requires_grad=True)
    run = _compiled(module, budget="85%")
    run(batch).backward()
    assert _only_program().result.reruns
    assert batch.grad is not None
    direction, step = torch.randn_like(batch), 1e-2
    losses: list[float] = []
    for sign in (1, -1):
        torch.manual_seed(1)
        losses.append(float(run((batch + sign * step * direction).detach().requires_grad_())))
    torch.manual_seed(1)
    batch.grad = None
    run(batch).backward()
    slope = (losses[0] - losses[1]) / (2 * step)
    assert slope == pytest.approx(float((batch.grad * direction).sum()), rel=0.05, abs=1e-4)


def test_a_saved_plan_is_followed_without_planning(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, batch = Blocks(3), torch.randn(512, 96)
    _compiled(module, budget="75%")(batch).backward()
    planned = _only_program()
    lowtide.torch.save_plans(tmp_path)
    torch._dynamo.reset()
    _compiled(module, budget="75%", plans=str(tmp_path))(batch).backward()
    followed = _only_program()
    assert list(followed.result.plan.steps()) == list(planned.result.plan.steps())
    assert followed.predicted_peak_bytes == planned.predicted_peak_bytes


@pytest.mark.filterwarnings("ignore:lowtide. .* more than its budget")
def test_nothing_is_said_about_the_program_before_fusion(recwarn: pytest.WarningsRecorder) -> None:
    """A budget that no plan meets is reported with the best peak of the kernels."""
    torch.manual_seed(0)
    module, batch = Blocks(2), torch.randn(256, 96)
    _compiled(module, budget="20%")(batch).backward()
    torch._dynamo.reset()
    (message,) = (
        str(each.message) for each in recwarn.list if "lowtide" in str(each.message) and "budget" in str(each.message)
    )
    assert "before ops are fused" not in message
    assert not _only_program().result.claims
