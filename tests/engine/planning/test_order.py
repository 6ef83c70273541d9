"""The second stage: another order where it needs less, the program's own where that does."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.progress import silent
from lowtide.engine.graph import Graph
from lowtide.engine.planning.find_plan import baseline, order
from lowtide.engine.planning.settings import PlanSettings
from tests.engine.planning.graphs import diamond
from tests.examples import examples
from tests.strategies import graphs


def _interrupt(stage: str) -> None:
    raise KeyboardInterrupt


def test_a_better_order_takes_the_place_of_the_program_with_its_bounds_and_its_packing() -> None:
    draft = order(baseline(diamond(), PlanSettings()), silent)
    assert (draft.scheduler, dict(draft.plan.peak_bytes)) == ("search", {"device": 1211})
    assert [bound.peak_bytes for bound in draft.bounds] == [1211]
    assert draft.packing is not None
    assert draft.packing.arena_bytes["device"] >= 1211


@pytest.mark.parametrize("budget", ["100%", 7300])
def test_a_program_that_fits_its_budget_stays_as_it_is(budget: str | int) -> None:
    first = baseline(diamond(), PlanSettings(budget=budget))
    draft = order(first, silent)
    assert draft.plan is first.plan
    assert draft.scheduler == "baseline"


def test_with_a_budget_it_moves_as_little_as_makes_the_program_fit() -> None:
    draft = order(baseline(diamond(), PlanSettings(budget="60%")), silent)
    assert draft.scheduler == "fit"
    assert draft.fits


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        (PlanSettings(scheduler="lpmf"), "lpmf"),
        (PlanSettings(scheduler="search", budget="60%"), "search"),
        (PlanSettings(techniques=frozenset()), "baseline"),
    ],
)
def test_an_order_asked_for_by_name_is_the_only_one(asked: PlanSettings, name: str) -> None:
    assert order(baseline(diamond(), asked), silent).scheduler == name


@examples(60)
@given(graphs(max_ops=8), st.sampled_from([None, "60%", "90%"]))
def test_it_never_needs_more_than_the_program(graph: Graph, budget: str | None) -> None:
    first = baseline(graph, PlanSettings(budget=budget))
    assert not order(first, silent).is_beaten_by(first.plan)


def test_ctrl_c_leaves_the_program_as_it_is_and_says_so() -> None:
    first = baseline(diamond(), PlanSettings())
    draft = order(first, _interrupt)
    assert draft.plan is first.plan
    assert draft.interrupted
    assert order(replace(first, interrupted=True), _interrupt).plan is first.plan
