"""Dropping until it fits: the answer is true, the peak never rises, no work is done where none is left."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.graph import Graph
from lowtide.engine.recompute import Drops, Program, floor_of
from lowtide.engine.recompute.choose_drops import drop_until_it_fits
from tests.examples import examples
from tests.oracles.plans import problem_of
from tests.oracles.residual_chain import residual_chain
from tests.strategies import graphs


@examples(150)
@given(graphs(24), st.integers(0, 100))
def test_dropping_tells_whether_the_budget_is_met(graph: Graph, percent: int) -> None:
    problem = problem_of(graph)
    program = Program(problem, problem.given_order(), graph.cost)
    budget = program.execute(Drops()).peak_bytes * percent // 100
    fits, drops = drop_until_it_fits(program, Drops(), budget, 10_000_000)
    assert fits == (program.execute(drops).peak_bytes <= budget)


def test_nothing_is_dropped_where_no_work_is_left() -> None:
    problem = problem_of(residual_chain(12))
    program = Program(problem, problem.given_order(), problem.graph.cost)
    fits, drops = drop_until_it_fits(program, Drops(), 1, 0)
    assert not fits
    assert not len(drops.moments)


def test_an_interrupt_is_heeded_while_dropping() -> None:
    """Were it heeded behind the kernel only, all the work of a whole run would have been done."""
    problem = problem_of(residual_chain(300))
    program = Program(problem, problem.given_order(), problem.graph.cost)
    impossible = floor_of(program).peak_bytes - 1
    drop_until_it_fits(program, Drops(), impossible, 10**9)
    whole = program.native.work
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.005)
    try:
        with pytest.raises(KeyboardInterrupt):
            drop_until_it_fits(program, Drops(), impossible, 10**9)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert program.native.work - whole < whole
