"""Reruns at other moments for a smaller arena: the same runs, the same peak, addresses that hold."""

from dataclasses import replace

import pytest

from lowtide.core.progress import silent
from lowtide.engine.graph import Graph
from lowtide.engine.packing import Packing, pack_plan
from lowtide.engine.plan import StepKind, verify
from lowtide.engine.planning.draft import Draft
from lowtide.engine.planning.find_plan import baseline, order
from lowtide.engine.planning.judge import judge
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.planning.tighten import tighten
from lowtide.engine.planning.trade import trade
from tests.oracles.residual_chain import residual_chain
from tests.strategies import random_graph

SETTINGS = PlanSettings(budget="60%", techniques=frozenset({"reorder", "share", "recompute"}), effort="fast")


def draft_and_packing(graph: Graph) -> tuple[Draft, Packing]:
    """Return a graph's draft within its budget, and a packing of it."""
    draft = judge(trade(order(baseline(graph, SETTINGS), silent), silent), silent)
    return draft, pack_plan(graph, draft.plan, draft.problem.transient, effort="fast")


@pytest.mark.parametrize("seed", [1, 12, 21])
def test_reruns_move_where_the_packing_is_loose_and_nothing_else_changes(seed: int) -> None:
    """Runs, the order of first runs and the peak stay; the new addresses hold."""
    graph = random_graph(seed, 14)
    draft, packing = draft_and_packing(graph)
    loose = replace(packing, arena_bytes={space: 2 * size for space, size in packing.arena_bytes.items()})
    plan, tighter = tighten(draft, loose, "fast", silent)
    assert plan is not draft.plan
    before, after = (each.targets[each.kinds == StepKind.RUN].tolist() for each in (draft.plan, plan))
    assert sorted(after) == sorted(before)
    assert list(dict.fromkeys(after)) == list(dict.fromkeys(before))
    assert dict(plan.peak_bytes) == dict(draft.plan.peak_bytes)
    assert tighter.total_bytes < loose.total_bytes
    verify(graph, replace(plan, addresses=tighter.addresses, arena_bytes=tighter.arena_bytes), check_capacity=False)


def test_a_plan_is_kept_where_its_arena_is_near_its_peak() -> None:
    """Nothing is tried where nothing is to be had."""
    draft, packing = draft_and_packing(residual_chain(8))
    assert packing.total_bytes == sum(draft.plan.peak_bytes.values())
    plan, same = tighten(draft, packing, "fast", silent)
    assert plan is draft.plan
    assert same is packing
