"""Compiled training computes a loss over many classes in chunks, forward and backward, with the bits of eager."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import lowtide.torch as lt
from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs

TOKENS, WIDTH, CLASSES = 2304, 32, 4099
"""A multiple of as many tokens as any BLAS library is known to sum at a time."""
LOGITS = TOKENS * CLASSES * 4
Step = Callable[[Any, "Head", torch.Tensor], None]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.manual_seed(0)
    torch.compiler.reset()
    forget_programs()


class Head(nn.Module):
    """A table of tokens and an output layer, which may be the same, or have a bias."""

    def __init__(self, *, tied: bool = True, bias: bool = True) -> None:
        super().__init__()
        self.tokens = nn.Embedding(CLASSES, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES, bias=bias)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.tokens(tokens)))


def plain(model: Head, tokens: torch.Tensor, **settings: Any) -> torch.Tensor:
    """Return the mean cross entropy, some tokens ignored."""
    return functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten(), ignore_index=3, **settings)


def shifted(model: Head, tokens: torch.Tensor) -> torch.Tensor:
    """Return the loss of telling the next token."""
    logits = model(tokens)[:, :-1].contiguous()
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def with_z_loss(model: Head, tokens: torch.Tensor) -> torch.Tensor:
    """Return a loss that holds the logits near zero, too."""
    logits = model(tokens).flatten(0, 1)
    return functional.cross_entropy(logits, tokens.flatten()) + 1e-2 * logits.logsumexp(-1).square().mean()


LOSSES: dict[str, Callable[[Head, torch.Tensor], torch.Tensor]] = {
    "plain": plain,
    "of rows": lambda model, tokens: plain(model, tokens, reduction="none"),
    "smoothing": lambda model, tokens: plain(model, tokens, label_smoothing=0.1),
    "shifted": shifted,
    "z-loss": with_z_loss,
    "two": lambda model, tokens: plain(model, tokens) * plain(model, tokens.flip(1)),
}


def once(loss: Any, model: Head, tokens: torch.Tensor) -> None:
    """Train on the sum of what a loss gives."""
    loss(model, tokens).sum().backward()


def scaled(loss: Any, model: Head, tokens: torch.Tensor) -> None:
    """Give the backward pass another gradient than one to start from."""
    (loss(model, tokens).sum() * 3 / 7).backward()


def accumulated(loss: Any, model: Head, tokens: torch.Tensor) -> None:
    """Add up the gradients of two batches."""
    for batch in (tokens, tokens.flip(0)):
        (loss(model, batch).sum() / 2).backward()


def retained(loss: Any, model: Head, tokens: torch.Tensor) -> None:
    """Go back twice through one forward pass."""
    value = loss(model, tokens).sum()
    value.backward(retain_graph=True)
    value.backward()


STEPS: tuple[Step, ...] = (once, scaled, accumulated, retained)


def batch() -> torch.Tensor:
    """Return tokens, some of them to be ignored."""
    tokens = torch.randint(0, CLASSES, (2, TOKENS // 2))
    tokens[0, :4] = 3
    return tokens


def compiled(loss: Any, budget: Any, **more: Any) -> Any:
    """Compile a loss for the eager compiler."""
    return torch.compile(loss, backend="lowtide", options={"compiler": "eager", "budget": budget, **more})


def gradients(step: Step, loss: Any, model: Head, tokens: torch.Tensor) -> list[torch.Tensor]:
    """Return the gradients of a step."""
    model.zero_grad()
    step(loss, model, tokens)
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def check(step: Step, loss: Any, budget: Any, model: Head, most: float, **more: Any) -> None:
    """Compare a step with eager's, and its measured peak with a part of the logits."""
    tokens = batch()
    run = compiled(loss, budget, **more)
    expected, found = gradients(step, loss, model, tokens), gradients(step, run, model, tokens)
    assert all(map(torch.equal, found, expected))
    model.zero_grad()
    del expected, found
    peak, _ = peak_of_call(lambda: step(run, model, tokens), torch.device("cpu"))
    assert peak < most * LOGITS


@pytest.mark.share_of_cases
@pytest.mark.parametrize("name", LOSSES)
def test_no_logits_are_whole_within_a_budget(name: str) -> None:
    check(once, LOSSES[name], "40%", Head(), 1.2)


@pytest.mark.share_of_cases
@pytest.mark.parametrize("step", STEPS)
def test_no_bit_changes_whatever_the_backward_pass_starts_from(step: Step) -> None:
    check(step, plain, "30%", Head(bias=False, tied=False), 1.2)


@pytest.mark.parametrize("step", [once, retained])
def test_without_a_budget_the_gradient_of_the_loss_lies_where_its_logarithms_were(step: Step) -> None:
    check(step, plain, None, Head(bias=False), 2.5 if step is retained else 1.5)


def test_a_plan_in_chunks_is_taken_from_a_folder(tmp_path: Path) -> None:
    model = Head()
    compiled(plain, "30%")(model, batch()).backward()
    (planned,) = planned_programs()
    lt.save_plans(tmp_path)
    torch.compiler.reset()
    forget_programs()
    check(once, plain, "30%", model, 1.2, plans=str(tmp_path))
    (taken,) = planned_programs()
    assert taken.graph.fingerprint == planned.graph.fingerprint


Outputs = Callable[[Head, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def with_logits(model: Head, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss and the logits, as the models of transformers do."""
    logits = model(tokens)
    return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), ignore_index=3), logits


def with_known_logits(model: Head, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits that have no gradient."""
    loss, logits = with_logits(model, tokens)
    return loss, logits.detach()


def from_loss(outputs: Any, model: Head, tokens: torch.Tensor) -> None:
    """Train on the loss while the logits are there."""
    loss, logits = outputs(model, tokens)
    loss.backward()
    assert logits.shape == (*tokens.shape, CLASSES)


def from_both(outputs: Any, model: Head, tokens: torch.Tensor) -> None:
    """Train on something of the logits, too."""
    loss, logits = outputs(model, tokens)
    (loss + 1e-3 * logits.square().mean()).backward()


@pytest.mark.share_of_cases
@pytest.mark.parametrize(
    ("outputs", "step", "most"),
    [(with_known_logits, from_loss, 1.6), (with_logits, from_loss, 2.4), (with_logits, from_both, 5.2)],
)
def test_logits_that_are_returned_are_read_chunk_by_chunk(outputs: Outputs, step: Step, most: float) -> None:
    """Autograd hands the backward pass a gradient of returned logits as large as they are, zeros if nothing else.

    What trains on them outside of the graph holds more of that size.
    """
    check(step, outputs, "50%" if outputs is with_logits else "40%", Head(), most)
