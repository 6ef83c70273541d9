"""The fifth stage: addresses for every buffer, those that are known already where none can be better."""

from dataclasses import replace

from lowtide import minimize
from lowtide.core.progress import silent
from lowtide.engine.packing import pack_plan
from lowtide.engine.plan import verify
from lowtide.engine.planning.find_plan import baseline, order, place
from lowtide.engine.planning.judge import judge
from lowtide.engine.planning.settings import PlanSettings
from lowtide.reporting.planning import result_to_json, result_to_text
from tests.engine.planning.graphs import diamond
from tests.examples import share_of
from tests.strategies import random_graph


def test_a_placed_plan_has_addresses_and_claims_that_hold() -> None:
    graph = random_graph(3, 30)
    draft = place(judge(baseline(graph, PlanSettings()), silent), silent)
    assert draft.packing is not None
    assert draft.plan.addresses == draft.packing.addresses != ()
    assert draft.plan.arena_bytes == draft.packing.arena_bytes
    assert draft.plan.status == draft.status
    verify(graph, draft.plan, check_capacity=False)


def test_a_smallest_packing_that_an_earlier_stage_made_is_kept() -> None:
    ordered = judge(order(baseline(diamond(), PlanSettings()), silent), silent)
    assert ordered.packing is not None
    assert ordered.packing.is_smallest
    assert place(ordered, silent).packing is ordered.packing


def test_a_packing_that_more_effort_could_beat_is_made_again() -> None:
    ordered = judge(order(baseline(diamond(), PlanSettings()), silent), silent)
    assert ordered.packing is not None
    loose = replace(ordered.packing, lower_bound_bytes={"device": 0})
    assert place(replace(ordered, packing=loose), silent).packing is not loose
    fast = replace(ordered, packing=loose, settings=PlanSettings(effort="fast"))
    assert place(fast, silent).packing is loose


def test_ctrl_c_places_the_buffers_quickly_and_marks_the_plan() -> None:
    pressed: list[str] = []

    def press_once(stage: str) -> None:
        if not pressed:
            pressed.append(stage)
            raise KeyboardInterrupt

    graph = random_graph(3, 30)
    draft = place(judge(baseline(graph, PlanSettings()), silent), press_once)
    assert (draft.interrupted, draft.plan.status) == (True, "interrupted")
    quick = pack_plan(graph, draft.plan, draft.problem.transient, effort="fast")
    assert draft.plan.addresses == quick.addresses


def test_without_addresses_a_plan_has_the_same_peak_bound_and_cost_and_nothing_is_packed() -> None:
    for seed in share_of(range(20)):
        graph = random_graph(seed, 16)
        for budget in (None, "70%"):
            asked = {"budget": budget, "allow": ("reorder", "share", "recompute")[: 3 if budget else 2]}
            placed, bare = minimize(graph, **asked), minimize(graph, **asked, addresses=False)
            verify(graph, bare.plan, check_capacity=False)
            assert (bare.plan.addresses, dict(bare.arena_bytes)) == ((), {})
            assert bare.peak_bytes == placed.peak_bytes
            assert bare.lower_bound_bytes == placed.lower_bound_bytes
            assert (bare.status, bare.extra_cost) == (placed.status, placed.extra_cost)
            assert [claim for claim in placed.claims if claim.figure != "arena"] == list(bare.claims)


def test_the_page_and_the_object_of_a_plan_without_addresses_show_no_arena() -> None:
    result = minimize(diamond(), addresses=False)
    assert "arena" not in result_to_text(result)
    assert result_to_json(result)["arena_bytes"] == {}
    assert "arena" not in result._repr_html_()
