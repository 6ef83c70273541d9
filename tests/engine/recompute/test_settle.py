"""Plans as sequences of runs: correct whatever is traded, never over their budget, never dearer when improved."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowtide
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import verify
from lowtide.engine.recompute import Drops, Program, floor_of
from lowtide.engine.recompute.choose_drops import drop_until_it_fits
from lowtide.engine.recompute.neighborhoods import improve
from lowtide.engine.recompute.settle import Pick, settle_and_trim, settle_from
from tests.examples import examples
from tests.oracles.plans import problem_of
from tests.oracles.residual_chain import residual_chain
from tests.oracles.revolve import least_reruns
from tests.strategies import graphs


def program_of(graph: Graph, *, in_place: bool = False) -> Program:
    problem = problem_of(graph, in_place=in_place)
    return Program(problem, problem.given_order(), graph.cost)


@examples(200)
@given(graphs(24), st.booleans(), st.integers(0, 100), st.sampled_from(Pick), st.sampled_from((0.0, 0.2)))
def test_any_trades_play_as_a_correct_plan_with_the_live_bytes_of_the_simulator(
    graph: Graph, in_place: bool, percent: int, pick: Pick, reserve: float
) -> None:
    program = program_of(graph, in_place=in_place)
    budget = program.execute(Drops()).peak_bytes * percent // 100
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


@examples(60)
@given(graphs(24), st.booleans(), st.integers(30, 95))
def test_improving_keeps_to_the_budget_and_never_costs_more(graph: Graph, in_place: bool, percent: int) -> None:
    program = program_of(graph, in_place=in_place)
    budget = program.execute(Drops()).peak_bytes * percent // 100
    settled = settle_from(program, [], budget, max_cost=None, max_work=2_000_000)
    if settled is None:
        return
    assert settled.peak_bytes <= budget
    better = improve(program, settled, budget, 2_000_000)
    verify(graph, program.plan(better), check_capacity=False)
    assert better.peak_bytes <= budget
    assert better.extra_cost <= settled.extra_cost


@examples(60)
@given(graphs(24), st.booleans(), st.integers(30, 95))
def test_no_rerun_can_be_left_out_of_a_trimmed_plan(graph: Graph, in_place: bool, percent: int) -> None:
    program = program_of(graph, in_place=in_place)
    budget = program.execute(Drops()).peak_bytes * percent // 100
    settled = settle_from(program, [], budget, max_cost=None, max_work=20_000_000)
    if settled is None:
        return
    for rerun in np.flatnonzero(program.places[settled.runs] != settled.stages).tolist():
        assert program.replay(np.delete(settled.runs, rerun)).peak_bytes > budget


@examples(60)
@given(graphs(24), st.booleans(), st.integers(30, 95))
def test_runs_play_as_the_cuts_did_that_led_to_them(graph: Graph, in_place: bool, percent: int) -> None:
    program = program_of(graph, in_place=in_place)
    moments = np.asarray([graph.n_ops * percent // 100 * 2 + 1], np.int32)
    listed = np.asarray([(moments[0], b) for b in range(graph.n_buffers)], np.int32).reshape(-1, 2)
    played = program.execute(Drops(moments, listed))
    again = program.replay(played.runs)
    assert again.peak_bytes == played.peak_bytes
    assert again.extra_cost == pytest.approx(played.extra_cost)
    for name in ("stages", "live", "dies", "pairs"):
        assert np.array_equal(getattr(again, name), getattr(played, name))


@pytest.mark.parametrize("kept", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("depth", [8, 21, 30])
def test_a_chain_is_reversed_with_as_few_reruns_as_by_revolve(depth: int, kept: int) -> None:
    """With room for no result beside what an op needs, or for a few: optimal at every budget down to the floor."""
    program = program_of(residual_chain(depth))
    budget = floor_of(program).peak_bytes + 8 * kept
    settled = settle_from(program, [], budget, max_cost=None, max_work=20_000_000)
    assert settled is not None
    assert improve(program, settled, budget, 100_000_000).extra_cost == least_reruns(depth, kept)


def test_a_unet_fits_at_two_fifths_of_its_peak_where_greedy_choice_finds_no_plan() -> None:
    """What crosses from the way down to the way up must be made again while other reruns are under way."""
    graph = lowtide.read(Path(__file__).parents[3] / "benchmarks/graphs/unet_plain_b4.joint.graph.json.gz")
    program = program_of(graph)
    budget = program.execute(Drops()).peak_bytes * 2 // 5
    assert not drop_until_it_fits(program, Drops(), budget, 100_000_000)[0]
    settled = settle_from(program, [], budget, max_cost=None, max_work=100_000_000)
    assert settled is not None
    better = improve(program, settled, budget, 100_000_000)
    verify(graph, program.plan(better), check_capacity=False)
    assert better.peak_bytes <= budget
    assert better.extra_cost < settled.extra_cost < graph.cost.sum()


def test_runs_that_are_no_ops_are_refused() -> None:
    program = program_of(residual_chain(4))
    with pytest.raises(ValueError, match="no such op"):
        program.replay(np.asarray([99], np.int32))


def test_nothing_is_traded_where_no_work_is_left() -> None:
    program = program_of(residual_chain(12))
    assert settle_from(program, [], 1, max_cost=None, max_work=0) is None
