"""Attention in chunks of heads or sequences: no op needs all scores, and bits are equal."""

import math
from typing import Any

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.engine.plan import Plan
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.settings import PlanSettings

LENGTH, WIDTH, HEADS, SEQUENCES = 192, 32, 4, 2
SCORES = SEQUENCES * HEADS * LENGTH * LENGTH * 4


class Attention(nn.Module):
    """Attention with masked scores, quadratic in the length of a sequence."""

    def __init__(self, mask: torch.Tensor, *, reports_mean: bool = False) -> None:
        super().__init__()
        self.reports_mean = reports_mean
        self.mixed, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mask = nn.Buffer(mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.mixed(x).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        scores = query @ key.transpose(-2, -1) / math.sqrt(WIDTH / HEADS)
        weights = scores.masked_fill(self.mask, float("-inf")).softmax(-1)
        if self.reports_mean:
            weights.mean(1)  # nobody reads it
        return x + self.joined((weights @ value).transpose(1, 2).flatten(2))


MASKS = {
    "causal": torch.ones(LENGTH, LENGTH).triu(1).bool(),
    "of each sequence": (torch.arange(LENGTH) >= torch.tensor([[150], [LENGTH]])).view(SEQUENCES, 1, 1, LENGTH),
}
"""Masks of the tokens that a token ignores."""


def program(mask: str) -> Any:
    """Return the loss of two layers, and a batch."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Attention(MASKS[mask]) for _ in range(2)))
    return lambda x: model(x).square().mean(), (torch.randn(SEQUENCES, LENGTH, WIDTH),)


@pytest.mark.parametrize("mask", MASKS)
def test_forward_and_backward_pass_compute_the_scores_of_one_chunk_at_a_time(mask: str) -> None:
    opened = lt.TorchModel(program(mask))
    assert opened.in_finer_chunks is not None
    buffers = (opened.in_finer_chunks.buffer(index) for index in range(opened.in_finer_chunks.n_buffers))
    assert max(buffer.size_bytes for buffer in buffers) <= SCORES / SEQUENCES
    measured = opened.measure(Plan.baseline(opened.in_finer_chunks), timed_calls=1)
    assert measured.outputs_equal
    assert measured.after_bytes < 0.7 * measured.before_bytes


def test_an_op_without_readers_does_not_keep_the_scores_whole() -> None:
    model = Attention(MASKS["causal"], reports_mean=True)
    opened = lt.TorchModel((lambda x: model(x).square().mean(), (torch.randn(SEQUENCES, LENGTH, WIDTH),)))
    assert opened.in_finer_chunks is not None
    buffers = (opened.in_finer_chunks.buffer(index) for index in range(opened.in_finer_chunks.n_buffers))
    assert max(buffer.size_bytes for buffer in buffers) <= SCORES / SEQUENCES


def test_without_a_backward_pass_nothing_is_computed_twice() -> None:
    loss, batch = program("causal")
    with torch.no_grad():
        opened = lt.TorchModel((lambda x: loss(x).detach(), batch))
    assert opened.in_chunks is not None
    assert opened.in_finer_chunks is None
    measured = opened.measure(Plan.baseline(opened.in_chunks), timed_calls=1)
    assert measured.outputs_equal
    assert measured.after_bytes < SCORES


def test_rows_are_computed_twice_for_a_budget_and_the_cost_is_reported() -> None:
    opened = lt.TorchModel(program("causal"))
    assert plan_best_form(opened, PlanSettings()).graph is opened.in_chunks
    result = plan_best_form(opened, PlanSettings(budget=SCORES, transient=True))
    graph = result.graph
    assert graph is opened.in_finer_chunks
    assert result.shortfall is None
    assert result.chunk_cost > 0
