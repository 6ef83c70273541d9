"""Budgets: what they count, and what ranks plans."""

from typing import Any

import pytest

from lowtide.core.errors import UsageError
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.planning.budget import parse_budget


def _graph(capacity: int | None = None) -> Graph:
    builder = GraphBuilder("two spaces")
    builder.add_space("device", capacity_bytes=capacity)
    builder.add_space("host", capacity_bytes=70)
    builder.add_buffer("weight", 1000, Lifetime.PERSISTENT)
    builder.add_buffer("table", 50, Lifetime.PERSISTENT, space=1)
    return builder.build()


PEAK = {"device": 333, "host": 10}


def test_without_a_budget_only_capacities_limit_and_persistent_buffers_take_their_share() -> None:
    limit = parse_budget(None, _graph(), PEAK)
    assert limit.allowed == {"device": None, "host": 20}
    assert limit.limited_by["host"] == "its capacity"


def test_bytes_hold_persistent_buffers_too_and_are_for_the_first_space() -> None:
    for budget in (1200, "1200", "1.2 kB"):
        limit = parse_budget(budget, _graph(), PEAK)
        assert limit.allowed == {"device": 200, "host": 20}
        assert limit.limited_by["device"] == "the budget"


@pytest.mark.parametrize(
    ("budget", "allowed"), [("100%", 333), ("70%", 233), (" 33.33 % ", 110), ("0%", 0), ("150%", 499)]
)
def test_a_percentage_is_of_the_baseline_without_persistent_buffers_rounded_down(budget: str, allowed: int) -> None:
    assert parse_budget(budget, _graph(), PEAK).allowed["device"] == allowed


def test_the_tighter_of_budget_and_capacity_counts() -> None:
    assert parse_budget(1200, _graph(capacity=1100), PEAK).allowed["device"] == 100
    assert parse_budget(1200, _graph(capacity=1300), PEAK).allowed["device"] == 200
    assert parse_budget(900, _graph(), PEAK).allowed["device"] == -100


@pytest.mark.parametrize(
    ("budget", "allowed"), [(0.7, 233), ("0.7", 233), (".7", 233), (1.0, 333), ("1.0", 333), (0.0, 0), (0.1 + 0.2, 99)]
)
def test_a_number_with_a_point_from_0_to_1_is_a_part_of_the_baseline(budget: str | float, allowed: int) -> None:
    assert parse_budget(budget, _graph(), PEAK).allowed["device"] == allowed


@pytest.mark.parametrize("budget", [1.5, "1.5", -0.1, float("nan"), float("inf"), True])
def test_any_other_number_without_a_unit_is_a_usage_error(budget: str | float) -> None:
    with pytest.raises(UsageError, match="8GiB or 70%"):
        parse_budget(budget, _graph(), PEAK)


@pytest.mark.parametrize(
    "budget", ["%", "a%", "-5%", "1e3%", "50%%", "1234567%", "50 percent", "", "-1", "\u0665%", [], b"1"]
)
def test_what_is_no_budget_is_a_usage_error(budget: Any) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        parse_budget(budget, _graph(), PEAK)


def test_plans_rank_by_bytes_over_any_limit_first_and_by_all_bytes_then() -> None:
    limit = parse_budget(1200, _graph(), PEAK)
    fits, device_over, host_over = ({"device": d, "host": h} for d, h in ((200, 20), (201, 0), (0, 22)))
    assert limit.rank(fits) == (0, 220)
    assert limit.rank(fits) < limit.rank(device_over) < limit.rank(host_over)


def test_a_transient_budget_leaves_persistent_buffers_out() -> None:
    graph = _graph()
    beside = parse_budget(1000, graph, {"device": 100}, transient=True)
    persistent = graph.persistent_bytes()["device"]
    assert beside == parse_budget(1000 + persistent, graph, {"device": 100})
    for budget in (None, "70%"):
        with pytest.raises(UsageError, match="transient"):
            parse_budget(budget, graph, {"device": 100}, transient=True)
