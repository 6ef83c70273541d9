"""Plans with offload are verified, within the budget, and never worse than one technique."""

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import UsageError
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.offload import HOST, OffloadResult, plan_within_budget, with_host_space
from lowtide.engine.plan import Plan, StepKind, verify
from lowtide.engine.recompute import plan_within_budget as recompute_within_budget
from lowtide.engine.timeline import play_timeline
from tests.examples import examples
from tests.oracles.plans import problem_of
from tests.oracles.replay import replay
from tests.oracles.residual_chain import residual_chain
from tests.sentences import why
from tests.strategies import graphs, random_graph

BANDWIDTHS = (0.0, 0.5, 3.0, 20.0, math.inf)


def _plan(graph: Graph, percent: int, *techniques: str, exact: bool = False) -> OffloadResult:
    problem = problem_of(graph)
    order = problem.given_order()
    budget = int(problem.evaluate(order).peaks[0]) * percent // 100
    allow = set(techniques or ("recompute", "offload"))
    return plan_within_budget(problem, order, budget, allow=allow, exact=exact)


def _priced(graph: Graph, seed: int) -> Graph:
    random = Random(seed)
    return replace(graph, cost=np.asarray([random.choice((0.0, 0.5, 1.0, 3.0)) for _ in range(graph.n_ops)]))


def _with_streams(graph: Graph, bandwidth: float, capacity: int | None = None) -> Graph:
    """Add a host, or streams to an existing one."""
    if all(space.name != HOST for space in graph.spaces):
        return with_host_space(graph, bandwidth, capacity)
    first, host = graph.spaces
    links = ({HOST: bandwidth}, {first.name: bandwidth}) if bandwidth else ({}, {})
    spaces = (
        replace(first, bandwidth_bytes_per_s=links[0]),
        replace(host, bandwidth_bytes_per_s=links[1], capacity_bytes=capacity),
    )
    return replace(graph, spaces=spaces)


@examples(100)
@given(graphs(24), st.integers(0, 100), st.sampled_from(BANDWIDTHS), st.sampled_from((None, 0, 6)), st.integers(0, 9))
def test_a_plan_computes_the_same_within_the_budget_in_the_predicted_time(
    graph: Graph, percent: int, bandwidth: float, capacity: int | None, seed: int
) -> None:
    graph = _with_streams(_priced(graph, seed), bandwidth, capacity)
    result = _plan(graph, percent)
    verify(graph, result.plan, check_capacity=False)
    peaks = simulate(graph, result.plan).peak_bytes
    assert peaks[graph.spaces[0].name] == result.peak_bytes
    assert not result.fits or result.peak_bytes <= result.budget_bytes
    needed = simulate(graph, problem_of(graph).plan(problem_of(graph).given_order())).peak_bytes[HOST]
    assert capacity is None or peaks[HOST] <= max(capacity, needed)
    timeline = play_timeline(graph, result.plan)
    assert result.extra_cost == timeline.extra_seconds
    assert result.extra_cost == pytest.approx(result.rerun_seconds + result.stall_seconds)
    once, before = replay(graph, result.plan), replay(graph, Plan.baseline(graph))
    assert once.contents == before.contents
    assert once.stream == before.stream


@examples(60)
@given(graphs(24, callees=False), st.integers(20, 100), st.sampled_from(BANDWIDTHS), st.integers(0, 9))
def test_both_techniques_never_cost_more_than_one(graph: Graph, percent: int, bandwidth: float, seed: int) -> None:
    graph = _with_streams(_priced(graph, seed), bandwidth)
    both = _plan(graph, percent)
    for technique in ("recompute", "offload"):
        alone = _plan(graph, percent, technique)
        if alone.fits:
            assert both.fits
            assert both.extra_cost <= alone.extra_cost


@examples(60)
@given(graphs(24), st.integers(0, 100))
def test_without_streams_the_plan_is_that_of_recomputation(graph: Graph, percent: int) -> None:
    graph = _with_streams(graph, 0)
    problem = problem_of(graph)
    result = _plan(graph, percent)
    alone = recompute_within_budget(problem, problem.given_order(), result.budget_bytes, exact=False)
    assert result.fits == alone.fits
    assert result.extra_cost == pytest.approx(alone.extra_cost)
    assert result.extra_cost_bound == alone.extra_cost_bound
    assert not (result.plan.kinds == StepKind.COPY_OUT).any()


@pytest.mark.parametrize("depth", [3, 8, 20])
def test_with_an_infinite_bandwidth_a_chain_loses_no_time_at_its_floor(depth: int) -> None:
    graph = with_host_space(residual_chain(depth), math.inf)
    problem = problem_of(graph)
    result = plan_within_budget(problem, problem.given_order(), 32, allow={"offload"})
    assert result.fits
    assert result.extra_cost == 0
    assert result.status == "optimal"


@pytest.mark.parametrize("depth", [8, 20])
def test_copies_lower_the_peak_even_if_the_budget_is_missed(depth: int) -> None:
    """A chain needs 32 bytes. The shortfall of a lower budget names that floor."""
    graph = with_host_space(residual_chain(depth), 20.0)
    problem = problem_of(graph)
    result = plan_within_budget(problem, problem.given_order(), 31, allow={"offload"})
    assert not result.fits
    assert result.peak_bytes == 32
    assert "32 B" in why(result.shortfall)
    full = with_host_space(residual_chain(depth), 20.0, 0)
    assert plan_within_budget(problem_of(full), problem.given_order(), 31, allow={"offload"}).offloaded_bytes == 0


def test_stalls_at_the_peak_are_priced() -> None:
    """Copies of eight bytes take four seconds each way, and ops one second."""
    graph = with_host_space(residual_chain(4), 2.0)
    problem = problem_of(graph)
    peak = int(problem.evaluate(problem.given_order()).peaks[0])
    result = plan_within_budget(problem, problem.given_order(), peak - 8, allow={"offload"})
    assert result.fits
    assert result.offloaded_bytes == 8
    assert result.extra_cost == result.stall_seconds > 0


def test_recomputation_does_not_raise_another_space_above_its_capacity() -> None:
    """The op to recompute also writes 4 bytes on the host, where 4 others are live by then."""
    builder = GraphBuilder("two spaces")
    builder.add_space("device")
    builder.add_space(HOST, capacity_bytes=4)
    wide, late = builder.add_buffer("wide", 8), builder.add_buffer("late", 8)
    short, rest = builder.add_buffer("short", 1), builder.add_buffer("rest", 1)
    log, kept = (builder.add_buffer(name, 4, space=1) for name in ("log", "kept"))
    result = builder.add_buffer("result", 1, Lifetime.OUTPUT)
    builder.add_op("make", "op", writes=[wide, log])
    builder.add_op("shorten", "op", reads=[wide], writes=[short])
    builder.add_op("grow", "op", reads=[short], writes=[late, kept])
    builder.add_op("shrink", "op", reads=[late], writes=[rest])
    builder.add_op("join", "op", reads=[wide, rest, kept], writes=[result])
    graph = builder.build()
    found: dict[int | None, tuple[bool, int]] = {}
    for space in (graph.spaces[1], replace(graph.spaces[1], capacity_bytes=8)):
        problem = problem_of(replace(graph, spaces=(graph.spaces[0], space)))
        planned = plan_within_budget(problem, problem.given_order(), 12)
        found[space.capacity_bytes] = planned.fits, simulate(problem.graph, planned.plan).peak_bytes[HOST]
    assert found == {4: (False, 4), 8: (True, 8)}


@pytest.mark.share_of_cases
@pytest.mark.parametrize("seed", range(1, 13))
def test_more_bandwidth_and_more_memory_never_cost_more(seed: int) -> None:
    graph = _priced(random_graph(seed, 20), seed)
    by_speed = [_plan(_with_streams(graph, bandwidth), 70) for bandwidth in BANDWIDTHS]
    by_budget = [_plan(_with_streams(graph, 3.0), percent) for percent in (60, 70, 80, 90)]
    for results in (by_speed, by_budget):
        costs = [result.extra_cost if result.fits else math.inf for result in results]
        assert costs == sorted(costs, reverse=True)


def test_invalid_arguments_are_refused() -> None:
    graph = with_host_space(residual_chain(3), 1.0)
    problem = problem_of(graph)
    with pytest.raises(UsageError, match="cannot allow 'magic'"):
        plan_within_budget(problem, problem.given_order(), 8, allow={"magic"})
    with pytest.raises(UsageError, match="already"):
        with_host_space(graph, 1.0)
    with pytest.raises(UsageError, match="bandwidth"):
        with_host_space(residual_chain(3), math.nan)
    with pytest.raises(UsageError, match="capacity"):
        with_host_space(residual_chain(3), 1.0, -1)


@examples(25)
@given(graphs(16), st.integers(20, 95), st.sampled_from(BANDWIDTHS[1:]), st.integers(0, 9))
def test_the_solver_never_makes_a_plan_worse_and_its_bound_holds_for_every_plan(
    graph: Graph, percent: int, bandwidth: float, seed: int
) -> None:
    pytest.importorskip("highspy")
    graph = _with_streams(_priced(graph, seed), bandwidth)
    solved, greedy = _plan(graph, percent, exact=True), _plan(graph, percent)
    assert solved.fits >= greedy.fits
    for techniques in (("recompute",), ("offload",), ("recompute", "offload")):
        plan = _plan(graph, percent, *techniques)
        if plan.fits:
            assert solved.extra_cost <= plan.extra_cost + 1e-9
            assert solved.extra_cost_bound <= plan.extra_cost + 1e-9
