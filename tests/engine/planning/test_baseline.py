"""The first stage: the unmodified program with what it is held against."""

import pytest

from lowtide.core.errors import UsageError
from lowtide.engine.analysis import simulate
from lowtide.engine.offload import with_host_space
from lowtide.engine.plan import Plan
from lowtide.engine.planning.find_plan import baseline
from lowtide.engine.planning.settings import PlanSettings
from tests.engine.planning.graphs import diamond
from tests.oracles.residual_chain import residual_chain

TRADING = frozenset({"recompute", "offload"})


def test_it_is_the_program_as_it_stands_with_its_peak() -> None:
    graph = diamond()
    draft = baseline(graph, PlanSettings())
    assert list(draft.plan.steps()) == list(Plan.baseline(graph).steps())
    assert draft.plan.peak_bytes == draft.unmodified_peak_bytes == simulate(graph, draft.plan).peak_bytes
    assert (draft.scheduler, draft.extra_cost, draft.is_judged, draft.packing) == ("baseline", 0.0, False, None)


def test_percentages_are_of_the_unmodified_program_where_one_is_named() -> None:
    settings = PlanSettings(budget="50%")
    alone, beside = baseline(diamond(), settings), baseline(diamond(), settings, residual_chain(4))
    assert alone.budget.allowed == {"device": 1100}
    assert beside.budget.allowed == {"device": beside.unmodified_peak_bytes["device"] // 2} != alone.budget.allowed


def test_a_budget_holds_persistent_buffers_too() -> None:
    assert baseline(diamond(), PlanSettings(budget=6300)).budget.allowed == {"device": 1300}


@pytest.mark.parametrize("technique", sorted(TRADING))
def test_what_trades_time_for_memory_is_refused_without_a_budget(technique: str) -> None:
    graph = with_host_space(diamond(), 1.0)
    with pytest.raises(UsageError, match=f"technique {technique!r} would be ignored: .*; give a budget"):
        baseline(graph, PlanSettings(techniques=frozenset({technique})))


def test_offload_is_refused_where_there_is_nowhere_to_copy_to() -> None:
    with pytest.raises(UsageError, match="technique 'offload' would be ignored: offload needs a memory space"):
        baseline(diamond(), PlanSettings(budget="50%", techniques=frozenset({"offload"})))


def test_ops_are_priced_by_what_the_settings_name() -> None:
    graph = diamond()
    assert baseline(graph, PlanSettings(costs="eager")).prices.profile == "eager"
    known = baseline(graph, PlanSettings()).prices
    assert baseline(graph, PlanSettings(costs=known)).prices is known
    assert baseline(graph, PlanSettings(costs=lambda _: known)).prices is known
