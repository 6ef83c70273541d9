"""Generated training steps within budgets: layers that repeat tie all their costs, and are told apart."""

import pytest

from lowtide import minimize
from tests.benchmarks.conftest import Load

ALL = ("reorder", "share", "recompute")


@pytest.mark.parametrize("percent", [70, 50])
def test_layers_that_repeat_are_planned_close_to_the_bound(load: Load, percent: int) -> None:
    """A transformer step of thirty layers, whose ties no single price can tell apart: a layer is some percent of it."""
    graph = load("generate").training_step(1_000)
    peak = sum(minimize(graph, effort="fast").peak_bytes.values())
    found = minimize(
        graph, budget=f"{peak * percent // 100} B", transient=True, allow=ALL, costs="eager", effort="fast"
    )
    assert found.shortfall is None
    assert found.extra_cost_bound is not None
    assert 0 < found.extra_cost <= 1.05 * found.extra_cost_bound
