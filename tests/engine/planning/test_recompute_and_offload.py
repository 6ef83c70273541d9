"""Budgets that no order fits: ops run again, at a price with a bound, and only where a budget asks for it."""

import math
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide import frontier, minimize
from lowtide.core.errors import UsageError
from lowtide.engine.analysis import Problem, simulate
from lowtide.engine.analysis.lower_bounds import lower_bounds
from lowtide.engine.costs import price
from lowtide.engine.graph import Graph, GraphBuilder, read_graph_file
from lowtide.engine.offload import with_host_space
from lowtide.engine.plan import Plan, verify
from lowtide.engine.planning.result import Result
from lowtide.engine.recompute import compose, least_possible
from lowtide.engine.recompute.unrolled import first_runs, unroll
from tests.examples import examples
from tests.oracles.plans import claim, problem_of
from tests.oracles.replay import replay
from tests.oracles.residual_chain import residual_chain
from tests.sentences import why
from tests.strategies import graphs

TECHNIQUES = {"reorder", "share", "recompute"}
GRAPHS = Path(__file__).parents[3] / "benchmarks/graphs"
GPT2, UNET = (GRAPHS / f"{name}.graph.json.gz" for name in ("budget_gpt2_12.train", "unet_plain_b4.joint"))


@cache
def _gpt2() -> Graph:
    return read_graph_file(GPT2)


@cache
def _below_the_floor() -> Result:
    """Return the result for a budget that no plan meets."""
    return minimize(_gpt2(), budget="2%", allow=TECHNIQUES, effort="fast")


@examples(40)
@given(graphs(16), st.integers(0, 100))
def test_a_plan_for_a_budget_computes_what_the_program_computes(graph: Graph, percent: int) -> None:
    result = minimize(graph, budget=f"{percent}%", allow=TECHNIQUES)
    verify(graph, result.plan, check_capacity=False)
    before = replay(graph, claim(graph, Plan.baseline(graph)), at_addresses=True)
    assert replay(graph, result.plan, at_addresses=True).contents == before.contents


@examples(40)
@given(graphs(16), st.integers(0, 100))
def test_recompute_never_leaves_a_plan_further_over_the_budget_than_order_alone(graph: Graph, percent: int) -> None:
    budget, space = f"{percent}%", graph.spaces[0].name
    alone = minimize(graph, budget=budget, allow=("reorder", "share"))
    both = minimize(graph, budget=budget, allow=TECHNIQUES)
    if alone.shortfall is None:
        assert (both.shortfall, both.reruns, both.extra_cost) == (None, 0, 0.0)
    elif both.shortfall is not None:
        assert both.peak_bytes[space] <= alone.peak_bytes[space] or both.reruns == 0
    assert both.lower_bound_bytes[space] <= both.peak_bytes[space]
    if both.extra_cost_bound is not None:
        assert both.extra_cost_bound <= both.extra_cost or both.shortfall is not None


@examples(75)
@given(graphs(14), st.booleans())
def test_what_no_plan_can_beat_is_no_more_than_what_no_order_can_beat(graph: Graph, in_place: bool) -> None:
    problem = problem_of(graph, in_place=in_place)
    of_orders = lower_bounds(problem, [problem.given_order()])
    for space, bound in enumerate(of_orders):
        assert least_possible(problem, space).peak_bytes <= bound.peak_bytes


@examples(50)
@given(graphs(14, callees=False))
def test_the_runs_of_a_program_unroll_to_the_program_itself(graph: Graph) -> None:
    problem = Problem(graph)
    order = problem.given_order()
    unrolled = unroll(problem, list(range(graph.n_ops)))
    assert list(unrolled.graph.structure.predecessors) == list(graph.structure.predecessors)
    assert Problem(unrolled.graph).evaluate(order).peaks.tolist() == problem.evaluate(order).peaks.tolist()
    assert unrolled.runs(order) == list(range(graph.n_ops))


def test_every_run_keeps_the_attributes_of_its_op() -> None:
    builder = GraphBuilder("counted")
    first, second = (builder.add_buffer(name, 8) for name in ("first", "second"))
    builder.add_op("make", "make", writes=[first], scratch_bytes=3, cost=2.0, flops=7.0, device="device")
    builder.add_op("use", "use", reads=[first], writes=[second], pure=False)
    graph = builder.build()
    unrolled = unroll(Problem(graph), [0, 0, 1]).graph
    again = unrolled.op(1)
    assert [op.flops for op in unrolled.ops()] == [7.0, 7.0, None]
    assert (again.kind, again.scratch_bytes, again.cost, again.device) == ("make", 3, 2.0, "device")
    assert not unrolled.op(2).pure


def test_a_run_that_is_repeated_becomes_an_op_with_results_of_its_own() -> None:
    graph = residual_chain(4)
    runs = [0, 1, 2, 0, *range(3, graph.n_ops)]
    unrolled = unroll(Problem(graph), runs)
    assert unrolled.graph.n_ops == graph.n_ops + 1
    first, again = unrolled.graph.op(0), unrolled.graph.op(3)
    assert again.kind == first.kind
    assert set(again.writes).isdisjoint(first.writes)
    assert first_runs(runs).tolist() == list(range(graph.n_ops))


def test_order_and_choice_together_cost_no_more_than_the_best_base_order_alone() -> None:
    graph = _gpt2()
    problem = Problem(graph)
    given_order = problem.given_order()
    peak = int(problem.evaluate(given_order).peaks[0])
    found = compose(problem, [("given", given_order)], peak // 2)
    assert found.result.fits
    assert found.result.extra_cost / found.result.base_cost < 0.09
    assert found.result.gap < 0.01
    assert simulate(graph, found.result.plan).peak_bytes["device"] <= peak // 2


def test_a_budget_below_what_a_single_op_needs_is_infeasible_by_name() -> None:
    result = _below_the_floor()
    assert result.status == "infeasible"
    assert "'_log_softmax_backward_data' alone needs" in why(result.shortfall)
    assert result.extra_cost_bound is None


def test_below_the_floor_what_runs_again_still_lowers_the_peak() -> None:
    """Nobody is left with the peak of the best order when the budget is a little too small for any plan."""
    order_alone = minimize(_gpt2()).peak_bytes["device"]
    assert _below_the_floor().peak_bytes["device"] < order_alone // 2


@examples(30)
@given(graphs(14), st.integers(10, 100))
def test_first_runs_keep_their_order_where_reordering_is_not_allowed(graph: Graph, percent: int) -> None:
    result = minimize(graph, budget=f"{percent}%", allow={"recompute", "share"})
    assert first_runs(result.plan.order().tolist()).tolist() == list(range(graph.n_ops))


def test_the_profile_that_priced_the_plan_is_named_and_changes_the_choice() -> None:
    graph = _gpt2()
    eager, fused = (minimize(graph, budget="60%", allow=TECHNIQUES, costs=profile) for profile in ("eager", "fused"))
    assert (eager.costs, fused.costs) == ("eager", "fused")
    assert eager.plan.order().tolist() != fused.plan.order().tolist()
    prices = price(graph, "fused").seconds
    priced = prices[eager.plan.order()].sum() - prices.sum()
    assert fused.extra_cost <= priced


def test_recompute_without_a_budget_is_refused() -> None:
    with pytest.raises(UsageError, match="give a budget"):
        minimize(residual_chain(4), allow=TECHNIQUES)


def test_the_frontier_falls_in_memory_and_rises_in_time_and_names_a_knee() -> None:
    found = frontier(read_graph_file(UNET), effort="fast")
    peaks = [point.peak_bytes for point in found.points]
    costs = [point.extra_cost for point in found.points if point.fits]
    bounds = [point.extra_cost_bound for point in found.points if math.isfinite(point.extra_cost_bound)]
    assert peaks == sorted(peaks, reverse=True)
    assert costs == sorted(costs)
    assert bounds == sorted(bounds)
    assert found.knee is not None
    assert 0 < found.knee < len(found.points) - 1


def test_copies_to_the_host_and_reruns_together_cost_no_more_than_reruns_alone() -> None:
    graph = with_host_space(_gpt2(), 25e9)
    recompute = minimize(graph, budget="50%", allow=TECHNIQUES, effort="fast", addresses=False)
    both = minimize(graph, budget="50%", allow={*TECHNIQUES, "offload"}, effort="fast", addresses=False)
    assert both.shortfall is None
    assert both.extra_cost <= recompute.extra_cost
    assert replay(graph, both.plan).contents == replay(graph, Plan.baseline(graph)).contents
