"""The backend under Inductor computes a loss over many classes in chunks where nothing else meets the budget."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import lowtide.torch
from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
TOKENS, WIDTH, CLASSES = 1536, 32, 4099
LOGITS = TOKENS * CLASSES * 4
CPU = torch.device("cpu")


class Head(nn.Module):
    """A table of tokens, a layer, and an output layer with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.mix = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.head(torch.tanh(self.mix(self.tokens(tokens))))
        return functional.cross_entropy(logits, tokens, label_smoothing=0.1)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.manual_seed(0)
    torch.compiler.reset()
    forget_programs()


def gradients(run: Any, model: nn.Module, tokens: torch.Tensor) -> list[torch.Tensor]:
    """Return the gradients of a batch."""
    model.zero_grad()
    (run(tokens) * 3).backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def measured(run: Any, model: nn.Module, tokens: torch.Tensor) -> int:
    """Return the peak of a forward and a backward pass."""
    model.zero_grad()
    peak, _ = peak_of_call(lambda: (run(tokens) * 3).backward(), CPU)
    return peak


def test_a_budget_below_the_logits_is_met_with_the_gradients_of_eager_and_the_saved_plan_is_followed(
    tmp_path: Path,
) -> None:
    model, tokens = Head(), torch.randint(0, CLASSES, (TOKENS,))
    expected = gradients(model, model, tokens)
    compiled = torch.compile(model, backend="lowtide", options={"budget": "30%"})
    found = gradients(compiled, model, tokens)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    (planned,) = planned_programs()
    allowed = planned.result.budget.allowed["cpu"]
    assert allowed is not None
    assert planned.result.shortfall is None
    assert planned.ops_because is None
    peak = measured(compiled, model, tokens)
    assert peak <= allowed < LOGITS
    assert peak == pytest.approx(planned.predicted_peak_bytes["cpu"], rel=0.02)
    assert planned.own_peak_bytes is not None
    assert planned.own_peak_bytes > LOGITS
    lowtide.torch.save_plans(tmp_path)
    torch.compiler.reset()
    forget_programs()
    following = torch.compile(model, backend="lowtide", options={"budget": "30%", "plans": str(tmp_path)})
    torch.testing.assert_close(gradients(following, model, tokens), found, rtol=0, atol=0)
    assert planned_programs()[0].result.plan.graph_fingerprint == planned.result.plan.graph_fingerprint
