"""Plans within a budget, on random and real graphs: verified, within it, and equal to the simulator."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import UsageError, VerificationError
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import verify
from lowtide.engine.recompute import Drops, OrderedProgram, plan_within_budget
from lowtide.engine.recompute.checkpointing import plan_of_runs
from tests.examples import examples
from tests.oracles.plans import problem_of
from tests.oracles.residual_chain import residual_chain
from tests.sentences import why
from tests.strategies import graphs


@examples(150)
@given(graphs(24), st.booleans(), st.integers(0, 100))
def test_a_plan_that_fits_is_verified_and_costs_its_recomputed_runs(graph: Graph, in_place: bool, percent: int) -> None:
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
        assert str(budget) in why(result.shortfall)


@examples(150)
@given(graphs(24), st.booleans(), st.randoms(use_true_random=False))
def test_any_drops_give_a_correct_plan_with_the_live_bytes_of_the_simulator(
    graph: Graph, in_place: bool, random
) -> None:
    problem = problem_of(graph, in_place=in_place)
    program = OrderedProgram(problem, problem.given_order(), graph.cost)
    moments = sorted({random.randrange(2 * graph.n_ops + 2) for _ in range(random.randint(0, 4))})
    listed = [(m, b) for m in moments for b in range(graph.n_buffers) if random.random() < 0.4]
    drops = Drops(np.asarray(moments, np.int32), np.asarray(listed, np.int32).reshape(-1, 2))
    execution = program.execute(drops)
    plan = program.plan(execution)
    verify(graph, plan, check_capacity=False)
    live = simulate(graph, plan).live[:, 0]
    assert int(live.max()) == execution.peak_bytes
    assert live[1:][plan.kinds == 0].tolist() == execution.live.tolist()


def test_without_drops_a_program_runs_in_its_order() -> None:
    for_pairs = residual_chain(6, pairs=True)
    for in_place in (False, True):
        problem = problem_of(for_pairs, in_place=in_place)
        execution = OrderedProgram(problem, problem.given_order(), for_pairs.cost).execute(Drops())
        assert execution.peak_bytes == problem.evaluate(problem.given_order()).peaks[0]
        assert execution.extra_cost == 0


def test_a_residual_chain_is_checkpointed_at_the_lowest_cost() -> None:
    """Twelve results of 8 bytes with room for half: each dropped one costs an op."""
    problem = problem_of(residual_chain(12))
    baseline = int(problem.evaluate(problem.given_order()).peaks[0])
    result = plan_within_budget(problem, problem.given_order(), baseline - 40)
    assert result.fits
    assert result.extra_cost == 5


def test_the_shortfall_names_an_op_that_may_not_run_twice() -> None:
    problem = problem_of(residual_chain(12, pure=False))
    baseline = int(problem.evaluate(problem.given_order()).peaks[0])
    result = plan_within_budget(problem, problem.given_order(), baseline - 1)
    assert result.status == "infeasible"
    assert result.shortfall is not None
    assert "the tensors live during op" in why(result.shortfall)
    assert "live then: f x 12 (96 B)" in why(result.shortfall)


def test_the_same_call_gives_the_same_plan() -> None:
    problem = problem_of(residual_chain(30))
    budget = int(problem.evaluate(problem.given_order()).peaks[0]) // 2
    first, second = (plan_within_budget(problem, problem.given_order(), budget) for _ in range(2))
    assert first.plan.targets.tolist() == second.plan.targets.tolist()
    assert (first.extra_cost_bound, first.work) == (second.extra_cost_bound, second.work)


@pytest.mark.parametrize(
    ("cost", "budget", "said"),
    [
        (np.ones(3), 10, "give one cost for each of the 24 ops"),
        (np.full(24, np.nan), 10, "give a finite cost"),
        (np.full(24, -1.0), 10, "give a finite cost"),
        (np.ones(24), -1, "so give a larger one"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(cost: np.ndarray, budget: int, said: str) -> None:
    problem = problem_of(residual_chain(12))
    with pytest.raises(UsageError, match=said):
        plan_within_budget(problem, problem.given_order(), budget, cost=cost)


def test_one_place_bounds_the_cost_without_a_solver() -> None:
    """Five of twelve equal results must be dropped, as the bound of one minimum cut shows."""
    problem = problem_of(residual_chain(12))
    baseline = int(problem.evaluate(problem.given_order()).peaks[0])
    result = plan_within_budget(problem, problem.given_order(), baseline - 40, exact=False)
    assert (result.method, result.status) == ("greedy", "optimal")
    assert result.extra_cost == result.extra_cost_bound == 5


@examples(60)
@given(graphs(16), st.booleans(), st.integers(30, 99))
def test_the_solver_never_makes_a_plan_worse_and_its_bound_stays_below_every_plan(
    graph: Graph, in_place: bool, percent: int
) -> None:
    pytest.importorskip("highspy")
    problem = problem_of(graph, in_place=in_place)
    budget = int(problem.evaluate(problem.given_order()).peaks[0]) * percent // 100
    plain, exact = (plan_within_budget(problem, problem.given_order(), budget, exact=exact) for exact in (False, True))
    if plain.fits:
        assert exact.fits
        assert exact.extra_cost_bound <= exact.extra_cost <= plain.extra_cost
        assert plain.extra_cost_bound <= exact.extra_cost


def test_random_and_ordered_ops_and_mutations_run_once() -> None:
    builder = GraphBuilder("effects")
    buffers = [builder.add_buffer(f"b{k}", 8) for k in range(6)]
    last = builder.add_buffer("last", 8, Lifetime.OUTPUT)
    builder.add_op("random", "rand", writes=[buffers[0]], pure=False)
    builder.add_op("collective", "all_reduce", reads=[buffers[0]], writes=[buffers[1]], ordered=True)
    builder.add_op("plain", "relu", reads=[buffers[1]], writes=[buffers[2]])
    builder.add_op("changed later", "relu", reads=[buffers[2]], writes=[buffers[3]])
    builder.add_op("update", "add_", reads=[buffers[2]], mutates=[buffers[3]])
    builder.add_op("wide", "cat", reads=[buffers[2]], writes=[buffers[4], buffers[5]])
    builder.add_op("end", "sum", reads=buffers, writes=[last])
    graph = builder.build()
    problem = problem_of(graph)
    for budget in range(8, 60, 4):
        runs = plan_within_budget(problem, problem.given_order(), budget).plan.order().tolist()
        for name in ("random", "collective", "changed later", "update"):
            assert runs.count(graph.op_names.index(name)) == 1


def _two_gathers_with_a_peak_between(ranks: int) -> Graph:
    """Two weights are gathered in order and used at both ends, with a peak in between."""
    builder = GraphBuilder("regathering")
    shards = [builder.add_buffer(f"shard{k}", 4, Lifetime.PERSISTENT) for k in range(2)]
    whole = [builder.add_buffer(f"whole{k}", 8) for k in range(2)]
    steps = [builder.add_buffer(f"step{k}", 1) for k in range(3)]
    big, last = builder.add_buffer("big", 20), builder.add_buffer("last", 1, Lifetime.OUTPUT)
    for k in range(2):
        builder.add_op(
            f"gather{k}", "all_gather", reads=[shards[k]], writes=[whole[k]], ordered=True, ranks=ranks, rank_span=ranks
        )
    builder.add_op("first", "mm", reads=whole, writes=[steps[0]])
    builder.add_op("big", "mm", reads=[steps[0]], writes=[big])
    builder.add_op("small", "sum", reads=[big], writes=[steps[1]])
    builder.add_op("one", "mm", reads=[steps[1], whole[1]], writes=[steps[2]])
    builder.add_op("zero", "mm", reads=[steps[2], whole[0]], writes=[last])
    return builder.build()


def test_collectives_are_recomputed_after_first_runs_in_program_order() -> None:
    """Collectives are recomputed, other ordered ops are not."""
    problem = problem_of(_two_gathers_with_a_peak_between(2))
    result = plan_within_budget(problem, problem.given_order(), 22)
    assert result.fits
    runs = result.plan.order().tolist()
    assert runs.count(0) == runs.count(1) == 2
    assert list(dict.fromkeys(runs)) == sorted(set(runs))
    verify(problem.graph, result.plan)
    alone = problem_of(_two_gathers_with_a_peak_between(1))
    assert not plan_within_budget(alone, alone.given_order(), 22).fits


def test_a_first_run_of_a_collective_out_of_order_is_refused() -> None:
    """Ranks with different orders of collectives would deadlock."""
    graph = _two_gathers_with_a_peak_between(2)
    with pytest.raises(VerificationError, match="runs after ordered op"):
        verify(graph, plan_of_runs(graph, [1, 0, 2, 1, 3, 4, 5, 6]))


def test_a_plan_for_another_memory_space_counts_its_bytes_only() -> None:
    builder = GraphBuilder("two spaces")
    builder.add_space("device")
    builder.add_space("host")
    near, far = builder.add_buffer("near", 100, space=0), builder.add_buffer("far", 8, space=1)
    other, big = builder.add_buffer("other", 1, space=0), builder.add_buffer("big", 30, space=1)
    last = builder.add_buffer("last", 1, Lifetime.OUTPUT, space=0)
    builder.add_op("make near", "x", writes=[near])
    builder.add_op("make far", "x", writes=[far])
    builder.add_op("other", "x", reads=[near], writes=[other])
    builder.add_op("big", "x", reads=[other], writes=[big])
    builder.add_op("last", "x", reads=[far, near, big], writes=[last])
    graph = builder.build()
    problem = problem_of(graph)
    result = plan_within_budget(problem, problem.given_order(), 38, space=1)
    assert result.fits
    assert result.extra_cost == 0
    assert simulate(graph, result.plan).peak_bytes["host"] == result.peak_bytes == 38
