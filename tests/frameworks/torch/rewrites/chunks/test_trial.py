"""Chunks are tried on the real shapes: bit for bit, or to rounding where that is enough."""

import torch
from torch.nn import functional

from lowtide.frameworks.torch.rewrites.chunks.by_rows import ChunkSizes
from lowtide.frameworks.torch.rewrites.chunks.products import ProductRegion, find_products
from lowtide.frameworks.torch.rewrites.chunks.trial import Trials
from tests.frameworks.torch.rewrites.examples import trace

OTHER_SUMS = ChunkSizes(7)
"""So few rows that what is summed over them is summed in another order than as a whole."""


def region() -> ProductRegion:
    """Return a loss over many classes with the gradient of its head, a sum over rows."""

    def step(rows: torch.Tensor, head: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        softmax = functional.softmax(rows @ head, -1)
        return softmax.amax(-1), rows.t() @ softmax

    found, _ = find_products(trace(step, torch.randn(512, 16), torch.randn(16, 1024)).graph)
    return found[0]


def test_sums_in_another_order_are_equal_to_rounding_alone() -> None:
    assert Trials().first_equal(region(), [OTHER_SUMS]) is None
    assert Trials(exact=False).first_equal(region(), [OTHER_SUMS]) == OTHER_SUMS


def test_all_rows_at_once_are_equal_bit_for_bit() -> None:
    assert Trials().first_equal(region(), [OTHER_SUMS, ChunkSizes(512)]) == ChunkSizes(512)
