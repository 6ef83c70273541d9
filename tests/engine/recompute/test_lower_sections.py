"""Base orders in which every section above the budget needs the least."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lowtide.core.effort import SEARCH_EFFORTS
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.graph.execution import is_valid_order
from lowtide.engine.recompute import Drops, Program
from lowtide.engine.recompute.lower_sections import lower_sections
from tests.examples import examples
from tests.strategies import graphs

FAST = SEARCH_EFFORTS["fast"]


def two_rises() -> Graph:
    """Return a rise to 100 bytes that nothing avoids, then four results of 20 bytes that need not be there at once."""
    builder = GraphBuilder("two rises")
    large = builder.add_buffer("large", 100)
    builder.add_op("make", "make", writes=[large])
    sums = builder.add_buffer("sums", 1)
    builder.add_op("sum", "sum", reads=[large], writes=[sums])
    parts = [builder.add_buffer(f"part {k}", 20) for k in range(4)]
    for k, part in enumerate(parts):
        builder.add_op(f"part {k}", "make", reads=[sums], writes=[part])
    for k, part in enumerate(parts):
        result = builder.add_buffer(f"result {k}", 1, Lifetime.OUTPUT)
        builder.add_op(f"result {k}", "use", reads=[part], writes=[result])
    return builder.build()


def live_of(program: Program) -> NDArray[np.int64]:
    return program.execute(Drops()).live


def test_a_second_rise_that_another_order_avoids_is_gone_though_the_peak_stays():
    problem = Problem(two_rises())
    program = Program(problem, problem.given_order(), problem.graph.cost)
    lower = Program(problem, lower_sections(program, 60, FAST), problem.graph.cost)
    assert live_of(program).max() == live_of(lower).max() == 101
    assert (live_of(program) > 60).sum() > (live_of(lower) > 60).sum() == 2


@given(graphs(max_ops=9, callees=False), st.floats(0, 1))
@examples(60)
def test_the_order_is_valid_and_its_peak_no_higher(graph: Graph, share: float):
    problem = Problem(graph)
    program = Program(problem, problem.given_order(), graph.cost)
    peak = int(problem.evaluate(program.order).peaks.sum())
    order = lower_sections(program, int(share * peak), FAST)
    assert is_valid_order(graph, order)
    assert len(graph.spaces) > 1 or int(problem.evaluate(order).peaks.sum()) <= peak
