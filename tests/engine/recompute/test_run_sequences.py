"""Plans as sequences of runs are correct and within their budget, and improving never raises the cost."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowtide
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import verify
from lowtide.engine.recompute import Drops, OrderedProgram, floor_of, plan_within_budget
from lowtide.engine.recompute.choose_drops import drop_until_it_fits
from lowtide.engine.recompute.run_sequences import (
    Pick,
    improve,
    lowest_on_demand,
    on_demand,
    settle_and_trim,
    settle_from,
)
from tests.examples import examples, share_of
from tests.oracles.least_extra_cost import least_extra_cost
from tests.oracles.plans import problem_of
from tests.oracles.residual_chain import residual_chain
from tests.oracles.revolve import least_reruns
from tests.oracles.skipping_graphs import skipping_graph
from tests.strategies import graphs, random_graph


def program_of(graph: Graph, *, in_place: bool = False) -> OrderedProgram:
    problem = problem_of(graph, in_place=in_place)
    return OrderedProgram(problem, problem.given_order(), graph.cost)


@examples(200)
@given(graphs(24), st.booleans(), st.integers(0, 100), st.sampled_from(Pick), st.sampled_from((0.0, 0.2)))
def test_any_trades_give_a_correct_plan_with_the_live_bytes_of_the_simulator(
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
def test_improving_stays_within_the_budget_and_never_costs_more(graph: Graph, in_place: bool, percent: int) -> None:
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
def test_a_trimmed_plan_needs_all_its_recomputed_runs(graph: Graph, in_place: bool, percent: int) -> None:
    program = program_of(graph, in_place=in_place)
    budget = program.execute(Drops()).peak_bytes * percent // 100
    settled = settle_from(program, [], budget, max_cost=None, max_work=20_000_000)
    if settled is None:
        return
    for rerun in np.flatnonzero(program.places[settled.runs] != settled.stages).tolist():
        assert program.replay(np.delete(settled.runs, rerun)).peak_bytes > budget


@examples(60)
@given(graphs(24), st.booleans(), st.integers(30, 95))
def test_replaying_runs_gives_the_execution_of_their_drops(graph: Graph, in_place: bool, percent: int) -> None:
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
    """Optimal at every budget down to the floor, with room for no further result or for a few."""
    program = program_of(residual_chain(depth))
    budget = floor_of(program).peak_bytes + 8 * kept
    settled = settle_from(program, [], budget, max_cost=None, max_work=20_000_000)
    assert settled is not None
    assert improve(program, settled, budget, 100_000_000).extra_cost == least_reruns(depth, kept)


def test_a_unet_fits_at_two_fifths_of_its_peak_unlike_greedily() -> None:
    """Skip connections must be recomputed in the middle of other recomputation."""
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


def test_nothing_is_traded_without_work() -> None:
    program = program_of(residual_chain(12))
    assert settle_from(program, [], 1, max_cost=None, max_work=0) is None


WORK = 10_000_000


def _program(graph: Graph, *, in_place: bool = True) -> OrderedProgram:
    problem = problem_of(graph, in_place=in_place)
    return OrderedProgram(problem, problem.given_order(), graph.cost)


@pytest.mark.parametrize("in_place", [False, True])
def test_every_plan_is_correct_within_its_budget_and_no_cheaper_than_the_cheapest(in_place: bool) -> None:
    """On small graphs at every budget. Many of the budgets that some plan meets are met."""
    met, found = 0, 0
    graphs = [skipping_graph(seed) for seed in range(60)] + [random_graph(seed, 3 + seed % 4) for seed in range(60)]
    for graph in share_of(graphs, 4):
        program = _program(graph, in_place=in_place)
        for budget in range(program.execute(Drops()).peak_bytes - 1, floor_of(program).peak_bytes - 1, -1):
            least = least_extra_cost(program.problem, budget)
            execution = on_demand(program, budget, WORK)
            met += least < float("inf")
            if execution is not None:
                found += 1
                assert execution.peak_bytes <= budget
                assert execution.extra_cost >= least
                verify(graph, program.plan(execution), check_capacity=False)
    assert met > 20
    assert found >= 0.4 * met


@pytest.mark.parametrize(("depth", "above"), [(10, 0), (20, 0), (100, 8)])
def test_a_chain_runs_at_its_floor(depth: int, above: int) -> None:
    """A residual chain needs four buffers at once; a long one takes one more, since reruns are limited."""
    program = _program(residual_chain(depth))
    floor = floor_of(program).peak_bytes
    lowest = lowest_on_demand(program, floor, program.execute(Drops()).peak_bytes, 100 * WORK)
    assert lowest is not None
    assert lowest.peak_bytes == floor + above
    verify(program.problem.graph, program.plan(lowest), check_capacity=False)


def test_the_same_work_gives_the_same_plan_and_none_gives_none() -> None:
    program = _program(residual_chain(30))
    budget = 2 * floor_of(program).peak_bytes
    first, second = on_demand(program, budget, WORK), on_demand(_program(residual_chain(30)), budget, WORK)
    assert first is not None
    assert second is not None
    assert first.runs.tolist() == second.runs.tolist()
    assert on_demand(program, budget, 0) is None


def test_a_budget_at_the_floor_of_a_chain_is_met_without_exact_search() -> None:
    problem = problem_of(residual_chain(20))
    order = problem.given_order()
    floor = floor_of(OrderedProgram(problem, order, problem.graph.cost)).peak_bytes
    assert plan_within_budget(problem, order, floor, effort="fast", exact=False).fits
