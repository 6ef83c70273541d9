"""The fourth stage: what a plan is worth, or why none fits."""

from dataclasses import replace

import pytest

from lowtide.core.progress import silent
from lowtide.engine.analysis.budget import Shortfall
from lowtide.engine.planning.find_plan import baseline, order
from lowtide.engine.planning.judge import judge
from lowtide.engine.planning.settings import PlanSettings
from tests.engine.planning.graphs import diamond
from tests.oracles.residual_chain import residual_chain
from tests.sentences import why

KNOWN = Shortfall(space="device", allowed_bytes=1, reached_bytes=2, cause="not found")


def test_a_plan_that_meets_its_bound_is_optimal() -> None:
    draft = judge(order(baseline(diamond(), PlanSettings()), silent), silent)
    assert (draft.status, draft.shortfall) == ("optimal", None)
    assert draft.proof is not None


def test_the_program_itself_is_judged_against_a_bound_of_its_own() -> None:
    draft = judge(baseline(diamond(), PlanSettings()), silent)
    assert draft.status == "feasible"
    assert 0 < draft.bounds[0].peak_bytes <= 1211


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (4000, "persistent buffers need 5,000 B in device, 1,000 B more than the budget allows"),
        (5100, "the tensors live during op 'shrink1' (1,201 B of its own) need 1,211 B"),
        (6300, "the best plan found needs 2,200 B in device, 900 B more than the 1,300 B"),
    ],
)
def test_a_budget_that_is_not_met_has_a_reason(budget: int, reason: str) -> None:
    draft = judge(baseline(diamond(), PlanSettings(budget=budget)), silent)
    assert reason in why(draft.shortfall)
    assert (draft.status == "infeasible") == (budget < 6300)


def test_what_may_run_again_is_held_against_the_bound_of_such_plans() -> None:
    graph = residual_chain(12)
    by_order = judge(baseline(graph, PlanSettings(budget="100%")), silent)
    again = PlanSettings(budget="100%", techniques=frozenset({"recompute"}))
    assert judge(baseline(graph, again), silent).bounds[0].peak_bytes < by_order.bounds[0].peak_bytes


def test_what_an_earlier_stage_knows_stays() -> None:
    known = replace(baseline(diamond(), PlanSettings()), is_judged=True, shortfall=KNOWN)
    assert judge(known, silent) is known


def test_after_ctrl_c_no_bound_is_claimed_that_is_not_known() -> None:
    draft = judge(replace(baseline(diamond(), PlanSettings()), interrupted=True), silent)
    assert [bound.peak_bytes for bound in draft.bounds] == [0]
    assert draft.proof is None
