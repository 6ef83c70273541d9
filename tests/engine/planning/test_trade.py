"""The third stage: time for memory, only where it is allowed and needed."""

from dataclasses import replace

import pytest

from lowtide.core.progress import silent
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.offload import with_host_space
from lowtide.engine.plan import Plan, verify
from lowtide.engine.planning.find_plan import baseline
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.planning.trade import trade
from lowtide.engine.recompute.unrolled import first_runs
from tests.oracles.residual_chain import residual_chain

RERUN = PlanSettings(budget="60%", techniques=frozenset({"recompute"}))


def _interrupt(stage: str) -> None:
    raise KeyboardInterrupt


def test_a_plan_that_runs_again_fits_where_the_program_does_not() -> None:
    graph = residual_chain(12)
    first = baseline(graph, RERUN)
    draft = trade(first, silent)
    assert not first.fits
    assert draft.fits
    assert draft.extra_cost >= (draft.extra_cost_bound or 0.0) > 0
    assert draft.plan.peak_bytes == simulate(graph, draft.plan).peak_bytes
    assert first_runs(draft.plan.order().tolist()).tolist() == list(range(graph.n_ops))
    verify(graph, draft.plan, check_capacity=False)


def test_copies_are_taken_where_they_cost_less_than_running_again() -> None:
    graph = with_host_space(residual_chain(12), 1e9)
    settings = replace(RERUN, techniques=frozenset({"recompute", "offload"}))
    draft = trade(baseline(graph, settings), silent)
    assert draft.fits
    assert draft.extra_cost < trade(baseline(graph, RERUN), silent).extra_cost


@pytest.mark.parametrize("settings", [PlanSettings(budget="60%"), replace(RERUN, budget="100%")])
def test_nothing_is_traded_where_that_is_not_allowed_or_not_needed(settings: PlanSettings) -> None:
    draft = baseline(residual_chain(12), settings)
    assert trade(draft, silent) is draft


def test_what_no_plan_can_meet_is_infeasible_with_the_reason() -> None:
    draft = trade(baseline(residual_chain(12), replace(RERUN, budget="1%")), silent)
    assert draft.status == "infeasible"
    assert draft.shortfall
    assert draft.extra_cost_bound is None


def test_ctrl_c_leaves_the_plan_as_it_is_and_says_so() -> None:
    first = baseline(residual_chain(12), RERUN)
    draft = trade(first, _interrupt)
    assert draft.plan is first.plan
    assert draft.interrupted


def test_ctrl_c_within_the_search_leaves_the_best_plan_found_until_then_and_hands_on_no_worse() -> None:
    """The order before needs more than the budget; whoever keeps plans has one that meets it before the search ends."""

    def report(stage: str) -> None:
        if stage.startswith("closing the gap"):
            raise KeyboardInterrupt

    kept: list[int] = []

    def keep(_: Graph, plan: Plan) -> None:
        kept.append(plan.peak_bytes["device"])

    graph = residual_chain(60)
    first = replace(baseline(graph, RERUN), keep=keep)
    draft = trade(first, report)
    assert draft.interrupted
    assert draft.fits
    assert (draft.extra_cost > 0, draft.extra_cost_bound) == (True, None)
    assert not first.budget.excess_bytes({"device": kept[-1]})
    assert kept[0] == first.plan.peak_bytes["device"]
    verify(graph, draft.plan, check_capacity=False)
