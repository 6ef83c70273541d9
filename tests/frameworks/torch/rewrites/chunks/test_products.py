"""Losses over many classes in chunks: bits are equal for all ops between logits and loss."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import lowtide.torch as lt
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.frameworks.torch.rewrites.chunks.rule import ProductRows, SlicedRows
from tests.frameworks.torch.rewrites.examples import chunked

CLASSES, WIDTH, LENGTH = 4099, 70, 384
"""Three sequences have a multiple of the tokens that any BLAS library sums at a time."""
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def plain(logits: torch.Tensor, wanted: torch.Tensor, **settings: Any) -> torch.Tensor:
    """Return the mean cross entropy, with some tokens ignored."""
    return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=3, **settings)


def shifted(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Return the loss of predicting the next token, by slices of every sequence."""
    return plain(logits[:, :-1].contiguous(), wanted[:, 1:].contiguous())


def answers(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Return the loss of the tokens after a prompt. Targets are strided, and slices end within chunks."""
    return -logits[:, 39:-1].log_softmax(-1).gather(-1, wanted[:, 40:, None]).mean()


def masked(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Return the weighted mean over the tokens of a mask."""
    kept = (wanted != 3).to(logits.dtype).flatten()
    return (plain(logits, wanted, reduction="none") * kept).sum() / kept.sum()


LOSSES: dict[str, Loss] = {
    "plain": plain,
    "of rows": lambda logits, wanted: plain(logits, wanted, reduction="none").square().mean(),
    "soft cap, summed": lambda logits, wanted: plain(30 * torch.tanh(logits / 30), wanted, reduction="sum"),
    "z-loss": lambda logits, wanted: plain(logits, wanted) + 1e-2 * logits.logsumexp(-1).square().mean(),
    "smoothing": lambda logits, wanted: plain(logits, wanted, label_smoothing=0.1),
    "weights": lambda logits, wanted: plain(logits, wanted, weight=torch.linspace(0.5, 2, CLASSES)),
    "shifted": shifted,
    "answers": answers,
    "masked": masked,
    "temperature, scaled": lambda logits, wanted: plain(logits * 1.7, wanted) / 3,
    "mask of classes": lambda logits, wanted: plain(logits.masked_fill(torch.arange(CLASSES) % 7 == 2, -1e9), wanted),
}
"""Losses of logits."""


class Head(nn.Module):
    """A token embedding and an output layer, with or without shared weights and bias."""

    def __init__(self, tied: bool, width: int, bias: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(CLASSES, width)
        self.head = nn.Linear(width, CLASSES, bias=bias)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.tokens(tokens)))


def program(loss: Loss, tied: bool = True, length: int = LENGTH, width: int = WIDTH, bias: bool = False) -> Any:
    """Return a training step and its batch."""
    torch.manual_seed(0)
    model = Head(tied, width, bias)
    tokens = torch.randint(0, CLASSES, (3, length))
    tokens[0, :4] = 3
    step = lt.TrainingStep(
        model, lambda model, tokens: loss(model(tokens), tokens), torch.optim.AdamW(model.parameters())
    )
    return step, (tokens,)


def sizes_of(graph: Graph) -> dict[str, int]:
    """Return the bytes of all buffers of a graph, by name."""
    buffers = (graph.buffer(index) for index in range(graph.n_buffers))
    return {buffer.name: buffer.size_bytes for buffer in buffers}


@pytest.mark.share_of_cases(0.7)
@pytest.mark.parametrize("name", LOSSES)
def test_no_bit_of_a_step_changes_and_no_op_needs_all_logits(name: str) -> None:
    """With a bias. Its gradient sums the rows of every class."""
    opened = lt.TorchModel(program(LOSSES[name], bias=True))
    assert opened.in_chunks is not None
    logits = 3 * LENGTH * CLASSES * 4
    assert max(sizes_of(opened.in_chunks).values()) < logits / 2
    measured = opened.measure(Plan.baseline(opened.in_chunks), timed_calls=1)
    assert measured.outputs_equal
    assert measured.after_bytes < 0.7 * measured.before_bytes


def test_the_gradient_of_the_head_stays_in_windows_for_an_update_by_rows() -> None:
    opened = lt.TorchModel(program(plain, tied=False))
    assert opened.in_chunks is not None
    own = [size for name, size in sizes_of(opened.in_chunks).items() if name.startswith("mm")]
    assert max(own) < CLASSES * WIDTH * 4


def test_a_head_larger_than_its_logits_is_found_by_their_product() -> None:
    """The largest product is the head's gradient, which sums over the rows of the logits."""
    opened = lt.TorchModel(program(plain, length=256, width=1000))
    assert opened.in_chunks is not None
    assert "largest product" in opened.in_chunks.name
    assert opened.measure(Plan.baseline(opened.in_chunks), timed_calls=1).outputs_equal


def test_counts_of_a_metric_are_computed_chunk_by_chunk() -> None:
    step, (tokens,) = program(plain)
    model = step.model

    def counted(tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = model(tokens)
        best, wanted = logits.topk(5).indices, tokens.unsqueeze(-1)
        return plain(logits, tokens), (best[..., :1] == wanted).sum(), (best == wanted).any(-1).sum()

    opened = lt.TorchModel((counted, (tokens,)))
    assert opened.in_chunks is not None
    assert "largest product" in opened.in_chunks.name
    assert opened.measure(Plan.baseline(opened.in_chunks), timed_calls=1).outputs_equal


@pytest.mark.share_of_cases
@pytest.mark.parametrize("cap", [None, 30])
def test_a_program_that_returns_its_logits_reads_them_chunk_by_chunk(cap: float | None) -> None:
    step, (tokens,) = program(plain)

    def judged(tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = step.model(tokens)
        logits = logits if cap is None else cap * torch.tanh(logits / cap)
        return plain(logits, tokens), plain(logits, tokens, label_smoothing=0.1), logits

    opened = lt.TorchModel((judged, (tokens,)))
    assert opened.in_chunks is not None
    assert "largest product" in opened.in_chunks.name
    measured = opened.measure(Plan.baseline(opened.in_chunks), timed_calls=1)
    assert measured.outputs_equal
    assert measured.after_bytes < (2.6 if cap else 1.4) * 3 * LENGTH * CLASSES * 4


def test_returned_logits_are_not_in_chunks_and_reported() -> None:
    step, (tokens,) = program(plain)
    opened = lt.TorchModel((lambda tokens: step.model(tokens).softmax(-1), (tokens,)))
    (note,) = chunked(opened.captured).left_whole
    assert "is a result of the program" in note


def test_ops_that_mix_rows_are_not_in_chunks_and_reported() -> None:
    step = program(lambda logits, wanted: plain(logits, wanted) + logits.softmax(0).square().mean())
    (note,) = chunked(lt.capture(step)).left_whole
    assert "is not in chunks" in note
    assert "does not treat rows independently" in note


def test_rows_are_computed_twice_if_a_loss_needs_results_of_all_rows_first() -> None:
    opened = lt.TorchModel(program(lambda logits, wanted: plain(logits * plain(logits, wanted).detach(), wanted)))
    assert any("needs results of all rows first" in note for note in chunked(opened.captured).left_whole)
    assert opened.in_finer_chunks is not None
    measured = opened.measure(Plan.baseline(opened.in_finer_chunks), timed_calls=1)
    assert measured.outputs_equal
    assert measured.after_bytes < 0.7 * measured.before_bytes


def test_leading_dimensions_index_rows() -> None:
    rows = ProductRows(6)
    assert [rows.leading_dims(shape) for shape in ((6, 5), (2, 3, 5), (12, 5), (2, 3), (5,), (0, 6))] == [
        1,
        2,
        1,
        2,
        None,
        None,
    ]
    assert rows.chunk_shape((2, 3, 5), 4) == [1, 4, 5]
    assert rows.chunk_shape((12, 5), 4) == [8, 5]
    assert rows.match((2, 3, 1), (2, 3, 5))
    assert not rows.match((3, 5), (2, 3, 5))
    assert rows.are_broadcast((1, 1, 5), (2, 3, 5))
    assert not rows.are_broadcast((3, 5), (2, 3, 5))


def test_rows_of_a_slice_are_the_kept_rows_of_every_chunk() -> None:
    rows = SlicedRows(6, ProductRows(10), length=5, start=1, stop=4)
    kept = [row for row in range(10) if 1 <= row % 5 < 4]
    for first in range(10):
        for last in range(first + 1, 11):
            begin, end = rows.range_for(first, last)
            assert kept[begin:end] == [row for row in kept if first <= row < last]
            stretches = list(rows.stretches(first, last))
            assert [flag for count, flag in stretches for _ in range(count)] == [
                row in kept for row in range(first, last)
            ]
