"""Programs with kernels that give other bits in each run, such as sums in any order, measured with a plan."""

from random import Random

import pytest
import torch

import lowtide
from lowtide.engine.plan import Plan

RANDOM = Random(0)


@torch.library.custom_op("lowtide_tests::sum_in_any_order", mutates_args=())
def sum_in_any_order(x: torch.Tensor) -> torch.Tensor:
    """Sum rows, with an error in the last digits that is another one in each run."""
    return x.sum(0) * (1 + RANDOM.random() * 1e-6)


@sum_in_any_order.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[1:])


@pytest.mark.parametrize("is_noisy", [True, False])
def test_a_noisy_program_is_compared_with_itself(is_noisy: bool) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        h = (x * 2).relu()
        return (sum_in_any_order(h) if is_noisy else h.sum(0)).exp()

    model = lowtide.open_model((program, (torch.randn(64, 64),)))
    measured = model.measure(Plan.baseline(model.graph), timed_calls=1)
    assert measured.verdict == ("within noise" if is_noisy else "equal")
    assert bool(measured.own_difference) == is_noisy
    assert measured.describe().startswith("as far as the program equals itself" if is_noisy else "yes")
