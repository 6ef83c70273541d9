"""Reruns at other moments for a smaller arena: the same runs, the same peak, addresses that hold."""

from dataclasses import replace

import pytest

from lowtide.graph import Graph
from lowtide.packing import pack_plan
from lowtide.plan import StepKind, verify
from lowtide.planning.baseline import baseline
from lowtide.planning.judge import judge
from lowtide.planning.order import order
from lowtide.planning.settings import PlanSettings
from lowtide.planning.tighten import tighten
from lowtide.planning.trade import trade
from lowtide.progress import silent
from tests.oracles.residual_chain import residual_chain
from tests.strategies import random_graph

RERUNS = frozenset({"reorder", "share", "recompute"})


@pytest.mark.parametrize("graph", [residual_chain(8), *(random_graph(seed, 14) for seed in range(6))])
def test_a_plan_whose_packing_is_loose_keeps_its_runs_its_peak_and_the_order_of_first_runs(graph: Graph) -> None:
    settings = PlanSettings(budget="60%", techniques=RERUNS, effort="fast")
    draft = judge(trade(order(baseline(graph, settings), silent), silent), silent)
    packing = pack_plan(graph, draft.plan, draft.problem.transient, effort="fast")
    loose = replace(packing, arena_bytes={space: 2 * size for space, size in packing.arena_bytes.items()})
    plan, tighter = tighten(draft, loose, "fast", silent)
    before, after = (list(each.targets[each.kinds == StepKind.RUN]) for each in (draft.plan, plan))
    assert sorted(after) == sorted(before)
    assert list(dict.fromkeys(after)) == list(dict.fromkeys(before))
    assert dict(plan.peak_bytes) == dict(draft.plan.peak_bytes)
    assert tighter.total_bytes <= loose.total_bytes
    if tighter is not loose:
        verify(graph, replace(plan, addresses=tighter.addresses, arena_bytes=tighter.arena_bytes), check_capacity=False)
