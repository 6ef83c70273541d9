"""Trials on the real shapes compare bits, or compare up to rounding."""

import pytest
import torch
from torch.nn import functional

from lowtide.frameworks.torch.rewrites.chunks.chunk_products import ChunkSizes
from lowtide.frameworks.torch.rewrites.chunks.product_region import ProductRegion
from lowtide.frameworks.torch.rewrites.chunks.region_search import find_product_regions
from lowtide.frameworks.torch.rewrites.chunks.trial import Equal, Trial, Trials
from lowtide.frameworks.torch.rewrites.chunks.windows import Windows
from tests.frameworks.torch.rewrites.examples import trace

aten = torch.ops.aten
OTHER_SUMS = ChunkSizes(7)
"""So few rows that sums over them have another order."""


def region() -> ProductRegion:
    """Return a region with a softmax over many classes and a sum over its rows."""

    def step(rows: torch.Tensor, head: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        softmax = functional.softmax(rows @ head, -1)
        return softmax.amax(-1), rows.t() @ softmax

    found, _ = find_product_regions(trace(step, torch.randn(512, 16), torch.randn(16, 1024)).graph)
    return found[0]


def test_sums_in_another_order_are_equal_up_to_rounding_only() -> None:
    assert Trials().first_equal(region(), [OTHER_SUMS]) is None
    assert Trials(exact=False).first_equal(region(), [OTHER_SUMS]) == OTHER_SUMS


def test_all_rows_at_once_have_equal_bits() -> None:
    assert Trials().first_equal(region(), [OTHER_SUMS, ChunkSizes(512)]) == ChunkSizes(512)


def test_elements_of_an_input_may_share_memory() -> None:
    """Gradients of every sample read one row for all samples."""

    def step(row: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        return functional.softmax(row @ head, -1).amax(-1)

    one_row = torch.randn(16).expand(512, 16)
    found, _ = find_product_regions(trace(step, one_row, torch.randn(16, 1024)).graph)
    assert Trials().first_equal(found[0], [ChunkSizes(512)]) == ChunkSizes(512)


def loss_region() -> ProductRegion:
    """Return a region with a loss of one class per row and both gradients of its product."""

    def step(rows: torch.Tensor, head: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logarithms = aten._log_softmax(rows @ head.t(), 1, False)
        losses, total = aten.nll_loss_forward(logarithms, wanted, None, 0, -100)
        incoming = aten.nll_loss_backward(rows[:, 0], logarithms, wanted, None, 0, -100, total)
        gradient = aten._log_softmax_backward_data(incoming, logarithms, 1, torch.float32)
        return losses, gradient @ head, gradient.t() @ rows

    wanted = torch.randint(0, 4100, (512,))
    found, _ = find_product_regions(trace(step, torch.randn(512, 16), torch.randn(4100, 16), wanted).graph)
    return found[0]


def test_windows_that_sum_some_rows_at_a_time_are_equal() -> None:
    for separate in (False, True):
        uneven = ChunkSizes(64, Windows(1000, separate, rows_at_once=100))
        assert Trials(exact=False).first_equal(loss_region(), [uneven]) == uneven


def test_unequal_chunks_and_windows_are_not_tried_in_other_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only chunks of 3 rows and windows of 12 classes are equal."""
    tried: list[tuple[int, int]] = []

    def run(trial: object, sizes: ChunkSizes, *, exact: bool) -> Equal:
        assert sizes.windows is not None
        tried.append((sizes.rows, sizes.windows.classes))
        return Equal(sizes.rows == 3, sizes.windows.classes == 12)

    monkeypatch.setattr(Trial, "run", run)
    pairs = [ChunkSizes(rows, Windows(classes)) for rows in (1, 2, 3) for classes in (10, 11, 12)]
    assert Trials().first_equal(loss_region(), pairs) == pairs[-1]
    assert tried == [(1, 10), (2, 10), (3, 10), (3, 11), (3, 12)]
