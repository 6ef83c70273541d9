"""Moves that cost nothing: valid orders, no higher peak, updates and recomputations where they belong."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.analysis.problem import Order
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.search.uncross import close_order
from tests.examples import examples
from tests.oracles.plans import problem_of
from tests.strategies import graphs


def random_order(graph: Graph, seed: int) -> Order:
    """Some valid order."""
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
    """A chain that computes its values again for the way back; all is recomputed early and updated late."""
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
    """At the peak: the inputs of the 29 other layers, the result, what is recomputed, two gradients."""
    graph = checkpointed(30)
    problem = problem_of(graph)
    closed = close_order(problem, problem.given_order())
    assert problem.evaluate(problem.given_order()).peaks[0] > 300
    assert problem.evaluate(closed).peaks[0] == 29 + 1 + 10 + 1 + 8
