"""Base orders with every section above the budget in its order of lowest peak."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lowtide.core.effort import SEARCH_EFFORTS
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.graph.execution import is_valid_order
from lowtide.engine.recompute import Drops, OrderedProgram
from lowtide.engine.recompute.base_orders import lower_sections
from tests.examples import examples
from tests.strategies import graphs

FAST = SEARCH_EFFORTS["fast"]


def two_rises() -> Graph:
    """Return an unavoidable rise to 100 bytes, then four results of 20 bytes that need not be live at once."""
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


def live_of(program: OrderedProgram) -> NDArray[np.int64]:
    return program.execute(Drops()).live


def test_an_avoidable_second_rise_is_removed():
    problem = Problem(two_rises())
    program = OrderedProgram(problem, problem.given_order(), problem.graph.cost)
    lower = OrderedProgram(problem, lower_sections(program, 60, FAST), problem.graph.cost)
    assert live_of(program).max() == live_of(lower).max() == 101
    assert (live_of(program) > 60).sum() > (live_of(lower) > 60).sum() == 2


@given(graphs(max_ops=9, callees=False), st.floats(0, 1))
@examples(60)
def test_the_order_is_valid_and_its_peak_no_higher(graph: Graph, share: float):
    problem = Problem(graph)
    program = OrderedProgram(problem, problem.given_order(), graph.cost)
    peak = int(problem.evaluate(program.order).peaks.sum())
    order = lower_sections(program, int(share * peak), FAST)
    assert is_valid_order(graph, order)
    assert len(graph.spaces) > 1 or int(problem.evaluate(order).peaks.sum()) <= peak
