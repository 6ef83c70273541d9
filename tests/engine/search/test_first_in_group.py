"""What the first of several alike ops needs, against every order of small graphs and on layers that repeat."""

from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.effort import SEARCH_EFFORTS
from lowtide.engine.graph import Graph, GraphBuilder
from lowtide.engine.search import solve
from lowtide.engine.search.cuts import ClosureCuts
from lowtide.engine.search.uncross import first_in_group_bound, uncross_first
from tests.engine.search.test_closure import random_order
from tests.examples import examples
from tests.oracles.least_peak import least_peak
from tests.oracles.plans import problem_of
from tests.strategies import graphs


@examples(600)
@given(graphs(9), st.integers(0, 10**6), st.booleans())
def test_no_order_beats_the_bound_and_no_move_makes_an_order_worse(graph: Graph, seed: int, in_place: bool) -> None:
    problem = problem_of(graph, in_place=in_place)
    order = random_order(graph, seed)
    for space in range(len(graph.spaces)):
        assert first_in_group_bound(problem, order, space)[0] <= least_peak(problem, space)
        moved = uncross_first(problem, order, space, 10**9)
        assert sorted(moved.tolist()) == list(range(graph.n_ops))
        assert (problem.evaluate(moved).peaks <= problem.evaluate(order).peaks).all()


def layers(count: int) -> Graph:
    """A way back through `count` layers, each of which needs much for a moment and then frees little."""
    builder = GraphBuilder("layers")
    kept = [builder.add_buffer(f"kept{k}", 4) for k in range(count)]
    for k in range(count):
        builder.add_op(f"forward{k}", "forward", reads=[kept[k - 1]] if k else [], writes=[kept[k]])
    back = builder.add_buffer("loss", 1)
    builder.add_op("loss", "loss", reads=[kept[-1]], writes=[back])
    for k in reversed(range(count)):
        used, below, gradient = (
            builder.add_buffer(f"{name}{k}", size) for name, size in (("a", 9), ("b", 1), ("c", 50))
        )
        builder.add_op(f"again{k}", "again", reads=[kept[k], back], writes=[used])
        builder.add_op(f"step{k}", "step", reads=[back, kept[k]], writes=[below])
        builder.add_op(f"gradient{k}", "gradient", reads=[used], writes=[gradient])
        builder.add_op(f"update{k}", "update", reads=[gradient])
        back = below
    return builder.build()


def test_the_first_of_many_layers_sets_the_bound_where_each_alone_could_wait() -> None:
    graph = layers(30)
    problem = problem_of(graph)
    solution = solve(problem, [problem.given_order()], SEARCH_EFFORTS["fast"])
    alone = max(ClosureCuts(problem).of(op, 0).peak_bytes for op in range(graph.n_ops))
    assert alone < 30 * 4 + 50 <= solution.peaks[0]
    assert solution.optimal
    assert first_in_group_bound(problem, solution.order, 0)[0] == solution.peaks[0]
