"""Moves along cuts never raise a peak, and the first op of a group gives a bound."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.effort import SEARCH_EFFORTS
from lowtide.engine.analysis.problem import Order
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.search import solve
from lowtide.engine.search.cuts import ClosureCuts
from lowtide.engine.search.uncross import close_order, first_in_group_bound, uncross, uncross_first
from tests.examples import examples
from tests.oracles.least_peak import least_peak
from tests.oracles.plans import problem_of
from tests.oracles.slow_view import SlowView
from tests.strategies import graphs, random_graph


def random_order(graph: Graph, seed: int) -> Order:
    """Return a random valid order."""
    rng = Random(seed)
    waiting = [len(before) for before in graph.structure.predecessors]
    ready = [op for op in range(graph.n_ops) if not waiting[op]]
    order: list[int] = []
    while ready:
        order.append(ready.pop(rng.randrange(len(ready))))
        for after in graph.structure.successors[order[-1]].tolist():
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    return np.array(order, np.int32)


@examples(500)
@given(graphs(20), st.integers(0, 10**6), st.booleans())
def test_the_peak_is_never_higher_in_any_space_and_the_order_stays_valid(
    graph: Graph, seed: int, in_place: bool
) -> None:
    problem = problem_of(graph, in_place=in_place)
    order = random_order(graph, seed)
    closed = close_order(problem, order)
    assert (problem.evaluate(closed).peaks <= problem.evaluate(order).peaks).all()
    assert sorted(closed.tolist()) == list(range(graph.n_ops))
    place = np.argsort(closed)
    for op, before in enumerate(graph.structure.predecessors):
        assert all(place[earlier] < place[op] for earlier in before)


def checkpointed(n_layers: int) -> Graph:
    """Return a chain with recomputation in the backward pass, recomputed early and updated late."""
    builder = GraphBuilder("checkpointed chain")
    weight = [builder.add_buffer(f"weight{k}", 8, Lifetime.PERSISTENT) for k in range(n_layers)]
    kept = [builder.add_buffer("kept0", 1)]
    builder.add_op("start", "start", writes=kept)
    big: list[int] = []
    for k in range(n_layers):
        kept.append(builder.add_buffer(f"kept{k + 1}", 1))
        builder.add_op(f"forward{k}", "forward", reads=[kept[k]], writes=[kept[-1]])
        big.append(builder.add_buffer(f"big{k}", 10))
        builder.add_op(f"again{k}", "again", reads=[kept[k]], writes=[big[k]])
    back, gradients = kept[-1], list[int]()
    for k in reversed(range(n_layers)):
        below = builder.add_buffer(f"back{k}", 1)
        gradients.append(builder.add_buffer(f"gradient{k}", 8))
        builder.add_op(f"backward{k}", "backward", reads=[back, big[k]], writes=[below, gradients[-1]])
        back = below
    for k, gradient in enumerate(reversed(gradients)):
        builder.add_op(f"update{k}", "update", reads=[gradient], mutates=[weight[k]])
    return builder.build()


def test_recomputations_run_when_they_are_needed_and_updates_when_they_can() -> None:
    """At the peak: inputs of 29 other layers, the result, one recomputed value, two gradients."""
    graph = checkpointed(30)
    problem = problem_of(graph)
    closed = close_order(problem, problem.given_order())
    assert problem.evaluate(problem.given_order()).peaks[0] > 300
    assert problem.evaluate(closed).peaks[0] == 29 + 1 + 10 + 1 + 8


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
    """Return a backward pass through `count` layers with a short peak each, after which little is freed."""
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


def test_the_first_of_many_layers_sets_the_bound() -> None:
    graph = layers(30)
    problem = problem_of(graph)
    solution = solve(problem, [problem.given_order()], SEARCH_EFFORTS["fast"])
    alone = max(ClosureCuts(problem).of(op, 0).peak_bytes for op in range(graph.n_ops))
    assert alone < 30 * 4 + 50 <= solution.peaks[0]
    assert solution.optimal
    assert first_in_group_bound(problem, solution.order, 0)[0] == solution.peaks[0]
