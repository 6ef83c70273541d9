"""What recomputation would give is offered where it was not asked for, and is what asking for it gives."""

import pytest

from lowtide import minimize
from lowtide.core.techniques import checked_techniques
from lowtide.core.units import percent
from lowtide.engine.planning.next_technique import NextTechnique, next_technique
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.reporting.planning import result_to_text
from tests.oracles.residual_chain import residual_chain

GRAPH = residual_chain(12)


def offered(settings: PlanSettings) -> tuple[Result, NextTechnique | None]:
    """A result, and what is offered beyond it."""
    result = minimize(GRAPH, budget=settings.budget, allow=settings.techniques)
    return result, next_technique(GRAPH, result, settings)


def test_what_is_offered_is_what_asking_for_it_gives() -> None:
    result, offer = offered(PlanSettings())
    assert offer is not None
    assert offer.peak_bytes < result.peak_bytes[offer.space]
    asked = minimize(GRAPH, budget=offer.budget, allow=("reorder", "share", "recompute"), costs="eager")
    assert asked.shortfall is None
    assert asked.extra_cost <= offer.extra_cost


@pytest.mark.parametrize(
    "settings",
    [
        PlanSettings(budget="100%"),
        PlanSettings(budget="90%", techniques=checked_techniques(("reorder", "share", "recompute"))),
    ],
)
def test_nothing_is_offered_where_a_budget_was_met(settings: PlanSettings) -> None:
    _, offer = offered(settings)
    assert offer is None


def test_a_budget_that_no_order_meets_is_offered_with_reruns_and_their_price() -> None:
    result, offer = offered(PlanSettings(budget="90%"))
    assert result.shortfall is not None
    assert offer is not None
    assert offer.fits
    assert offer.settings == "--budget 90% --allow reorder,share,recompute --costs eager"
    asked = minimize(GRAPH, budget=offer.budget, allow=("reorder", "share", "recompute"), costs="eager")
    assert asked.shortfall is None
    assert asked.extra_cost <= offer.extra_cost
    price = percent(offer.extra_cost / offer.base_cost, signed=True)
    line = f"recomputation    fits with {offer.peak_bytes} B for {price} time: --budget 90%"
    assert line in result_to_text(result, None, offer)


@pytest.mark.parametrize("budget", ["5%", "1 B"])
def test_where_reruns_do_not_meet_a_budget_either_the_least_they_reach_is_offered(budget: str) -> None:
    """With what to ask for, which is met."""
    result, offer = offered(PlanSettings(budget=budget))
    assert offer is not None
    assert not offer.fits
    assert offer.peak_bytes < result.peak_bytes[offer.space]
    asked = minimize(GRAPH, budget=offer.budget, allow=("reorder", "share", "recompute"), costs="eager")
    assert asked.shortfall is None
    assert f"recomputation    lowers the peak to {offer.peak_bytes} B" in result_to_text(result, None, offer)


def test_a_result_that_gains_nothing_says_so() -> None:
    result = minimize(GRAPH, scheduler="given", in_place=False)
    assert "no gain" in result_to_text(result)


def test_ctrl_c_while_looking_ends_the_look_alone() -> None:
    def press(_stage: str) -> None:
        raise KeyboardInterrupt

    result = minimize(GRAPH)
    assert next_technique(GRAPH, result, PlanSettings(), press) is None
