"""Uncrossing never makes an order worse, and always gives a valid one."""

from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.graph import Graph
from lowtide.engine.search.cuts import ClosureCuts
from lowtide.engine.search.uncross import uncross
from tests.examples import examples
from tests.oracles.plans import problem_of
from tests.oracles.slow_view import SlowView
from tests.strategies import graphs, random_graph


@examples(200)
@given(graphs(14, callees=False), st.booleans(), st.data())
def test_an_uncrossed_order_is_valid_and_no_space_gets_a_higher_peak(
    graph: Graph, in_place: bool, data: st.DataObject
) -> None:
    problem = problem_of(graph, in_place=in_place)
    space = data.draw(st.integers(0, len(graph.spaces) - 1))
    before = problem.given_order()
    after = uncross(problem, before, ClosureCuts(problem), space, 10**8)
    has_run: set[int] = set()
    view = SlowView.of(problem)
    for op in after.tolist():
        assert op in view.ready(has_run)
        has_run.add(op)
    assert len(has_run) == graph.n_ops
    assert (problem.evaluate(after).peaks <= problem.evaluate(before).peaks).all()


def test_no_work_means_no_move() -> None:
    problem = problem_of(random_graph(3, 14))
    order = problem.given_order()
    assert uncross(problem, order, ClosureCuts(problem), 0, 0) is order
