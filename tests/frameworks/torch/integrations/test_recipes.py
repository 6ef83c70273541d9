"""The loops in `examples/`: within a budget, the losses are those of the plain loop, at a lower peak."""

from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import torch

from lowtide.frameworks.torch.measure.allocation_events import peak_of_call

EXAMPLES = Path(__file__).parents[4] / "examples"


def _nanogpt(names: dict[str, Any], budget: str | None) -> Callable[[], list[float]]:
    return lambda: names["train"](budget, "eager")


def _torchtune(names: dict[str, Any], budget: str | None) -> Callable[[], list[float]]:
    return names["Recipe"](budget, "eager").train


@pytest.mark.parametrize(("name", "loop"), [("nanogpt_loop", _nanogpt), ("torchtune_loop", _torchtune)])
def test_a_recipe_trains_within_the_budget_as_it_does_without(
    name: str, loop: Callable[[dict[str, Any], str | None], Callable[[], list[float]]]
) -> None:
    names = run_path(str(EXAMPLES / f"{name}.py"))
    torch.compiler.reset()
    peak, losses = peak_of_call(loop(names, None), torch.device("cpu"))
    lower, found = peak_of_call(loop(names, "60%"), torch.device("cpu"))
    assert found == losses
    assert len(set(losses)) == len(losses) == 4
    assert lower < 0.8 * peak
