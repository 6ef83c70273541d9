"""Outputs of a plan are compared with the unmodified program, and that with itself."""

from collections.abc import Callable
from itertools import count
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lowtide.frameworks.outputs import compare_outputs, largest_difference

ONES = np.ones(4, np.float32)


def noisy(size: float) -> Callable[[], list[Any]]:
    """Return a program whose result is another one in each run."""
    runs = count(1)
    return lambda: [ONES + np.float32(size * (next(runs) % 3))]


def test_a_program_that_differs_from_itself_is_no_reproach_to_the_plan() -> None:
    run = noisy(1e-5)
    found = compare_outputs(run(), run(), run)
    assert not found.outputs_equal
    assert found.own_difference == pytest.approx(2e-5, rel=0.1)
    assert found.verdict == "within noise"
    assert found.describe().startswith("as far as the program equals itself: ")
    assert found.in_short().startswith("no further off than two runs without the plan")


def test_a_plan_further_off_than_the_noise_of_the_program_differs() -> None:
    run = noisy(1e-5)
    found = compare_outputs(run(), [ONES + np.float32(1e-2)], run)
    assert found.verdict == "different"
    assert "two runs without the plan differ by 2.0e-05" in found.describe()


def test_a_plan_that_differs_from_an_exact_program_differs_however_little() -> None:
    found = compare_outputs([ONES], [np.nextafter(ONES, np.float32(2))], lambda: [ONES])
    assert (found.verdict, found.own_difference) == ("different", 0)
    assert found.describe() == "no, they differ by at most 1.2e-07 of a tensor's largest number"


def test_equal_bits_need_one_run() -> None:
    def never() -> list[Any]:
        raise AssertionError

    found = compare_outputs([ONES * np.nan, "text"], [ONES * np.nan, "text"], never)
    assert found.verdict == "equal"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros(2), -np.zeros(2)),
        (np.zeros(2), np.zeros(2, np.float32)),
        (np.zeros(2), np.zeros((2, 1))),
        (np.array([1, 2]), np.array([1, 3])),
        ([np.zeros(1)], [np.zeros(1), np.zeros(1)]),
        ({"a": ONES}, {"b": ONES}),
        (np.array(["a"], object), np.array(["b"], object)),
        (np.ones(2, ml_dtypes.bfloat16), np.array([1, 1.5], ml_dtypes.bfloat16)),
        (np.ones(2, complex), np.array([1, 1j])),
        (ONES, ONES * np.nan),
    ],
)
def test_whatever_differs_has_a_difference_between_nothing_and_all(one: Any, other: Any) -> None:
    assert 0 < largest_difference(one, other) <= 1.5
    assert largest_difference(one, one) == largest_difference(other, other) == 0
