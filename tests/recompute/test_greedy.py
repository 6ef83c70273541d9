"""Going down in steps: the answer is true, the peak never rises, no work is done where none is left."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.graph import Graph
from lowtide.recompute import Cuts, Program
from lowtide.recompute.greedy import descend_until_it_fits
from tests.oracles.plans import problem_of
from tests.oracles.residual_chain import residual_chain
from tests.strategies import graphs


@settings(max_examples=150)
@given(graphs(24), st.integers(0, 100), st.sampled_from((0.8, 0.9, 0.95)))
def test_going_down_in_steps_never_raises_the_peak_and_tells_whether_it_fits(
    graph: Graph, percent: int, step: float
) -> None:
    problem = problem_of(graph)
    program = Program(problem, problem.given_order(), graph.cost)
    untouched = program.execute(Cuts()).peak_bytes
    budget = untouched * percent // 100
    fits, cuts = descend_until_it_fits(program, Cuts(), budget, step, 10_000_000)
    peak = program.execute(cuts).peak_bytes
    assert peak <= untouched
    assert fits == (peak <= budget)


def test_going_down_in_steps_reaches_a_budget_of_half_the_peak_of_a_residual_chain() -> None:
    problem = problem_of(residual_chain(12))
    program = Program(problem, problem.given_order(), problem.graph.cost)
    budget = program.execute(Cuts()).peak_bytes // 2
    fits, cuts = descend_until_it_fits(program, Cuts(), budget, 0.9, 10_000_000)
    assert fits
    assert program.execute(cuts).peak_bytes <= budget


def test_nothing_is_dropped_where_no_work_is_left() -> None:
    problem = problem_of(residual_chain(12))
    program = Program(problem, problem.given_order(), problem.graph.cost)
    fits, cuts = descend_until_it_fits(program, Cuts(), 1, 0.9, 0)
    assert not fits
    assert not len(cuts.moments)
