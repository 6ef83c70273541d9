"""What holds for every scheduler in the table, whatever the graph."""

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.problem import Order
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.schedule import scheduler, scheduler_names
from tests.examples import examples
from tests.oracles.random_graphs import random_graph

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE = 100_000
every_scheduler = pytest.mark.parametrize("name", scheduler_names())


def _empty() -> Graph:
    return GraphBuilder("empty").build()


def _single() -> Graph:
    builder = GraphBuilder("single")
    builder.add_op("only", "op", writes=[builder.add_buffer("out", 4, Lifetime.OUTPUT)])
    return builder.build()


def _chain() -> Graph:
    builder = GraphBuilder("chain")
    previous: list[int] = []
    for op in range(LARGE):
        out = builder.add_buffer(f"b{op}", op % 7)
        builder.add_op(f"op{op}", "op", reads=previous, writes=[out])
        previous = [out]
    return builder.build()


def _star_out() -> Graph:
    builder = GraphBuilder("star out")
    hub = builder.add_buffer("hub", 8)
    builder.add_op("hub", "op", writes=[hub])
    for op in range(LARGE):
        builder.add_op(f"op{op}", "op", reads=[hub], writes=[builder.add_buffer(f"b{op}", op % 7)])
    return builder.build()


def _star_in() -> Graph:
    builder = GraphBuilder("star in")
    spokes = [builder.add_buffer(f"b{op}", op % 7) for op in range(LARGE)]
    for op, out in enumerate(spokes):
        builder.add_op(f"op{op}", "op", writes=[out])
    builder.add_op("hub", "op", reads=spokes, writes=[builder.add_buffer("hub", 8, Lifetime.OUTPUT)])
    return builder.build()


@pytest.fixture(scope="module", params=[_empty, _single, _chain, _star_out, _star_in], ids=lambda make: make.__name__)
def extreme(request: pytest.FixtureRequest) -> Graph:
    """A graph at the edge of what there is."""
    make: Callable[[], Graph] = request.param
    return make()


def _assert_valid(graph: Graph, order: Order) -> None:
    assert order.dtype == np.int32
    assert np.array_equal(np.sort(order), np.arange(graph.n_ops))
    place = np.empty(graph.n_ops, np.int64)
    place[order] = np.arange(graph.n_ops)
    predecessors = graph.structure.predecessors
    assert (place[predecessors.values] < place[predecessors.owners()]).all()


@every_scheduler
@examples(200)
@given(seed=st.integers(0, 10**9))
def test_the_order_holds_every_op_once_after_its_predecessors(name: str, seed: int) -> None:
    graph = random_graph(seed)
    _assert_valid(graph, scheduler(name).order(Problem(graph)))


@every_scheduler
@examples(50)
@given(seed=st.integers(0, 10**9))
def test_the_same_graph_built_again_gets_the_same_order(name: str, seed: int) -> None:
    first = scheduler(name).order(Problem(random_graph(seed)))
    again = scheduler(name).order(Problem(random_graph(seed)))
    assert first.tolist() == again.tolist()


@every_scheduler
def test_empty_single_deep_and_wide_graphs_are_ordered(name: str, extreme: Graph) -> None:
    _assert_valid(extreme, scheduler(name).order(Problem(extreme)))
