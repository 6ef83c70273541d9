"""Plans within a budget on random graphs of any kind and on real ones: verified, never over, played as simulated."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.analysis import simulate
from lowtide.errors import UsageError
from lowtide.graph import Graph
from lowtide.plan import verify
from lowtide.recompute import Cuts, Program, plan_within_budget
from tests.oracles.plans import problem_of
from tests.oracles.residual_chain import residual_chain
from tests.strategies import graphs


@settings(max_examples=150)
@given(graphs(24), st.booleans(), st.integers(0, 100))
def test_a_plan_that_fits_is_verified_and_costs_what_it_runs_again(graph: Graph, in_place: bool, percent: int) -> None:
    problem = problem_of(graph, in_place=in_place)
    order = problem.given_order()
    budget = int(problem.evaluate(order).peaks[0]) * percent // 100
    result = plan_within_budget(problem, order, budget, exact=False)
    verify(graph, result.plan, check_capacity=False)
    assert simulate(graph, result.plan).peak_bytes[graph.spaces[0].name] == result.peak_bytes
    assert result.fits == (result.peak_bytes <= budget)
    runs = result.plan.order()
    assert result.extra_cost == pytest.approx(float(graph.cost[runs].sum() - graph.cost.sum()))
    if result.fits:
        assert result.shortfall is None
        assert result.extra_cost_bound <= result.extra_cost
    else:
        assert result.status in ("infeasible", "stopped_by_work")
        assert str(budget) in (result.shortfall or "")


@settings(max_examples=150)
@given(graphs(24), st.booleans(), st.randoms(use_true_random=False))
def test_any_cuts_play_as_a_correct_plan_with_the_live_bytes_of_the_simulator(
    graph: Graph, in_place: bool, random
) -> None:
    problem = problem_of(graph, in_place=in_place)
    program = Program(problem, problem.given_order(), graph.cost)
    moments = sorted({random.randrange(2 * graph.n_ops + 2) for _ in range(random.randint(0, 4))})
    listed = [(m, b) for m in moments for b in range(graph.n_buffers) if random.random() < 0.4]
    cuts = Cuts(np.asarray(moments, np.int32), np.asarray(listed, np.int32).reshape(-1, 2))
    execution = program.execute(cuts)
    plan = program.plan(execution)
    verify(graph, plan, check_capacity=False)
    live = simulate(graph, plan).live[:, 0]
    assert int(live.max()) == execution.peak_bytes
    assert live[1:][plan.kinds == 0].tolist() == execution.live.tolist()


def test_without_cuts_a_program_runs_as_its_order_says() -> None:
    for_pairs = residual_chain(6, pairs=True)
    for in_place in (False, True):
        problem = problem_of(for_pairs, in_place=in_place)
        execution = Program(problem, problem.given_order(), for_pairs.cost).execute(Cuts())
        assert execution.peak_bytes == problem.evaluate(problem.given_order()).peaks[0]
        assert execution.extra_cost == 0


def test_a_residual_chain_is_checkpointed_at_the_least_cost() -> None:
    """Twelve results of 8 bytes; with room for half of them, each that is dropped costs one op."""
    problem = problem_of(residual_chain(12))
    untouched = int(problem.evaluate(problem.given_order()).peaks[0])
    result = plan_within_budget(problem, problem.given_order(), untouched - 40)
    assert result.fits
    assert result.extra_cost == 5


def test_what_must_not_run_twice_makes_a_budget_infeasible_and_is_named() -> None:
    problem = problem_of(residual_chain(12, pure=False))
    untouched = int(problem.evaluate(problem.given_order()).peaks[0])
    result = plan_within_budget(problem, problem.given_order(), untouched - 1)
    assert result.status == "infeasible"
    assert result.shortfall is not None
    assert "alone needs" in result.shortfall
    assert "a0 (8)" in result.shortfall


def test_the_same_call_gives_the_same_plan() -> None:
    problem = problem_of(residual_chain(30))
    budget = int(problem.evaluate(problem.given_order()).peaks[0]) // 2
    first, second = (plan_within_budget(problem, problem.given_order(), budget) for _ in range(2))
    assert first.plan.targets.tolist() == second.plan.targets.tolist()
    assert (first.extra_cost_bound, first.work) == (second.extra_cost_bound, second.work)


@pytest.mark.parametrize(
    ("cost", "budget", "said"),
    [
        (np.ones(3), 10, "give one for each of the 24 ops"),
        (np.full(24, np.nan), 10, "costs are finite"),
        (np.full(24, -1.0), 10, "costs are finite"),
        (np.ones(24), -1, "below zero"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(cost: np.ndarray, budget: int, said: str) -> None:
    problem = problem_of(residual_chain(12))
    with pytest.raises(UsageError, match=said):
        plan_within_budget(problem, problem.given_order(), budget, cost=cost)
