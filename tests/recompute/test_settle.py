"""Plans as sequences of runs: correct whatever is traded, never over their budget, never dearer when improved."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.analysis import simulate
from lowtide.graph import Graph
from lowtide.plan import verify
from lowtide.recompute import Cuts, Program, floor_of
from lowtide.recompute.neighborhoods import improve
from lowtide.recompute.settle import Pick, settle_and_trim, settle_from
from tests.oracles.plans import problem_of
from tests.oracles.residual_chain import residual_chain
from tests.strategies import graphs


def program_of(graph: Graph, *, in_place: bool = False) -> Program:
    problem = problem_of(graph, in_place=in_place)
    return Program(problem, problem.given_order(), graph.cost)


@settings(max_examples=200)
@given(graphs(24), st.booleans(), st.integers(0, 100), st.sampled_from(Pick), st.sampled_from((0.0, 0.2)))
def test_any_trades_play_as_a_correct_plan_with_the_live_bytes_of_the_simulator(
    graph: Graph, in_place: bool, percent: int, pick: Pick, reserve: float
) -> None:
    program = program_of(graph, in_place=in_place)
    budget = program.execute(Cuts()).peak_bytes * percent // 100
    fits, execution = settle_and_trim(
        program,
        program.order,
        budget,
        weights=program.cost,
        pick=pick,
        reserve=reserve,
        max_cost=float("inf"),
        max_work=10_000_000,
    )
    plan = program.plan(execution)
    verify(graph, plan, check_capacity=False)
    live = simulate(graph, plan).live[:, 0]
    assert int(live.max()) == execution.peak_bytes
    assert live[1:][plan.kinds == 0].tolist() == execution.live.tolist()
    assert fits == (execution.peak_bytes <= budget)
    assert execution.extra_cost == pytest.approx(float(graph.cost[execution.runs].sum() - graph.cost.sum()))


@settings(max_examples=60)
@given(graphs(24), st.booleans(), st.integers(30, 95))
def test_improving_keeps_to_the_budget_and_never_costs_more(graph: Graph, in_place: bool, percent: int) -> None:
    program = program_of(graph, in_place=in_place)
    budget = program.execute(Cuts()).peak_bytes * percent // 100
    settled = settle_from(program, [], budget, max_cost=None, max_work=2_000_000)
    if settled is None:
        return
    assert settled.peak_bytes <= budget
    better = improve(program, settled, budget, 2_000_000)
    verify(graph, program.plan(better), check_capacity=False)
    assert better.peak_bytes <= budget
    assert better.extra_cost <= settled.extra_cost


@settings(max_examples=60)
@given(graphs(24), st.booleans(), st.integers(30, 95))
def test_runs_play_as_the_cuts_did_that_led_to_them(graph: Graph, in_place: bool, percent: int) -> None:
    program = program_of(graph, in_place=in_place)
    moments = np.asarray([graph.n_ops * percent // 100 * 2 + 1], np.int32)
    listed = np.asarray([(moments[0], b) for b in range(graph.n_buffers)], np.int32).reshape(-1, 2)
    played = program.execute(Cuts(moments, listed))
    again = program.replay(played.runs)
    assert again.peak_bytes == played.peak_bytes
    assert again.extra_cost == pytest.approx(played.extra_cost)
    for name in ("stages", "live", "dies", "pairs"):
        assert np.array_equal(getattr(again, name), getattr(played, name))


@pytest.mark.parametrize("depth", [8, 16, 30])
def test_a_chain_fits_right_above_its_floor_by_running_again_within_what_runs_again(depth: int) -> None:
    """With room for one checkpoint beside what an op needs, most results are made from the start more than once."""
    program = program_of(residual_chain(depth))
    floor = floor_of(program).peak_bytes
    settled = settle_from(program, [], floor + 8, max_cost=None, max_work=50_000_000)
    assert settled is not None
    assert settled.peak_bytes <= floor + 8
    assert np.bincount(settled.runs).max() > 2


def test_a_chain_is_checkpointed_as_cheaply_as_is_known_to_be_possible() -> None:
    """With room for c results beyond the floor, a chain of binomial(c + 2, 2) costs at most two forward passes."""
    program = program_of(residual_chain(21))
    budget = floor_of(program).peak_bytes + 5 * 8
    settled = settle_from(program, [], budget, max_cost=None, max_work=50_000_000)
    assert settled is not None
    assert improve(program, settled, budget, 100_000_000).extra_cost <= 2 * 21


def test_runs_that_are_no_ops_are_refused() -> None:
    program = program_of(residual_chain(4))
    with pytest.raises(ValueError, match="no such op"):
        program.replay(np.asarray([99], np.int32))


def test_nothing_is_traded_where_no_work_is_left() -> None:
    program = program_of(residual_chain(12))
    assert settle_from(program, [], 1, max_cost=None, max_work=0) is None
