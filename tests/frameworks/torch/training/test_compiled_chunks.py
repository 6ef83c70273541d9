"""A step compiled by Inductor does a loss over many classes in chunks where its kernels miss the budget otherwise."""

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import lowtide.torch as lt
from lowtide.frameworks.torch.measure.allocation_events import peak_of_call

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning"),  # Inductor's own
]
TOKENS, WIDTH, CLASSES, N_STEPS = 1536, 32, 4099, 3
LOGITS = TOKENS * CLASSES * 4
CPU = torch.device("cpu")


class Tied(nn.Module):
    """A layer between a table of tokens and the same table as the head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.mix = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, WIDTH)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return functional.linear(torch.tanh(self.mix(self.tokens(tokens))), self.tokens.weight)


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy of telling each token from itself."""
    return functional.cross_entropy(model(tokens), tokens)


def trained(step: Any, model: nn.Module) -> list[torch.Tensor]:
    """Return the losses of some steps, and the parameters after them."""
    losses = [step(batch(seed)).clone() for seed in range(N_STEPS)]
    return [*losses, *(parameter.detach().clone() for parameter in model.parameters())]


def batch(seed: int) -> torch.Tensor:
    """Return a batch of tokens."""
    return torch.randint(0, CLASSES, (TOKENS,), generator=torch.Generator().manual_seed(seed))


def made() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model with fixed random weights, and its optimizer."""
    torch.manual_seed(0)
    model = Tied()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def compiled(budget: str | None) -> tuple[lt.PlannedStep, list[torch.Tensor], int]:
    """Return a compiled step, what it computes, and its measured peak with its batch."""
    model, optimizer = made()
    step = lt.training_step(model, loss_of, optimizer, (batch(0),), compiler="inductor", budget=budget)
    assert isinstance(step, lt.PlannedStep)
    found, given = trained(step, model), batch(0)
    peak, _ = peak_of_call(lambda: step(given), CPU)
    return step, found, peak + given.nbytes


@pytest.fixture(name="expected", scope="module")
def expected_fixture() -> list[torch.Tensor]:
    """Give what eager training computes."""
    model, optimizer = made()
    return trained(lt.TrainingStep(model, loss_of, optimizer), model)


def test_a_budget_below_the_logits_is_met_in_chunks_with_the_results_of_eager(expected: list[torch.Tensor]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        step, found, measured = compiled("15%")
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    predicted, allowed = step.result.peak_bytes["cpu"], step.result.budget.allowed["cpu"]
    assert allowed is not None
    assert 0.95 * predicted <= measured <= predicted <= allowed < 0.5 * LOGITS
    assert step.result.shortfall is None
    assert step.result.form != "unmodified"


def test_without_a_budget_the_loss_is_written_over_the_logits(expected: list[torch.Tensor]) -> None:
    """Inductor alone holds two tensors of their size at once, or more; it keeps numbers for others of the same size."""
    step, found, measured = compiled(None)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert LOGITS < measured <= step.result.peak_bytes["cpu"] + 64 < 1.5 * LOGITS


def test_a_budget_that_chunks_miss_too_is_said_once_with_what_is_reached(expected: list[torch.Tensor]) -> None:
    with pytest.warns(UserWarning, match="least that is reached|needs") as said:
        step, found, measured = compiled("1%")
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert len([each for each in said if issubclass(each.category, UserWarning)]) == 1
    assert 0.95 * step.result.peak_bytes["cpu"] <= measured <= step.result.peak_bytes["cpu"] < 0.5 * LOGITS
