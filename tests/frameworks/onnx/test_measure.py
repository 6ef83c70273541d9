"""ONNX Runtime as the judge: what lowtide predicts is what the runtime allocates, and the results never change."""

from collections.abc import Callable
from typing import Any

import pytest

from lowtide.frameworks.onnx import OnnxModel
from lowtide.plan import Plan


@pytest.mark.parametrize("seed", range(4))
def test_any_order_needs_what_was_predicted(
    case: Any, plan_of: Callable[..., Plan], peak_of: Callable[..., int], seed: int
) -> None:
    """The measured peak of a random order equals the prediction, and the outputs equal the original's bit for bit."""
    model = OnnxModel(case.make(), case.dims)
    plan = plan_of(model, seed)
    measured = model.measure(plan)
    assert measured.outputs_equal
    assert -case.below_bytes <= measured.after_bytes - peak_of(model, plan) <= case.above_bytes
