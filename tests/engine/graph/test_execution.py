"""Valid orders of the ops, and the bytes that an op needs only while it runs."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given

from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.graph.execution import is_valid_order, transient_bytes
from tests.strategies import graphs, random_graph


@given(graphs(4))
def test_an_order_is_valid_if_every_op_comes_after_its_predecessors(graph: Graph) -> None:
    predecessors = list(graph.structure.predecessors)
    for order in permutations(range(graph.n_ops)):
        after_all = all(order.index(before) < order.index(op) for op in order for before in predecessors[op])
        assert is_valid_order(graph, np.asarray(order, np.int32)) == after_all


@pytest.mark.parametrize("order", [[], [0], [0, 0, 1], [-1, 0, 1], [0, 1, 3], [0, 1, 2, 3]])
def test_only_a_permutation_of_the_ops_is_a_valid_order(order: list[int]) -> None:
    graph = random_graph(3, 3)
    assert graph.n_ops == 3
    assert not is_valid_order(graph, np.asarray(order, np.int32))


def _caller(kind: str, *, in_place: bool) -> Graph:
    """Return an op that calls a body on a state of 8 bytes and writes the result in place or into a new buffer."""
    body = GraphBuilder("body")
    before = body.add_buffer("before", 8, Lifetime.DONATED)
    after = body.add_buffer("after", 8, Lifetime.OUTPUT)
    body.add_op("round", "add", reads=[before], writes=[after])
    builder = GraphBuilder("caller")
    builder.add_subgraph("body", body.build())
    state = builder.add_buffer("state", 8)
    builder.add_op("start", "iota", writes=[state])
    result = [] if in_place else [builder.add_buffer("result", 8, Lifetime.OUTPUT)]
    mutates = [state] if in_place else []
    builder.add_op("call", kind, reads=[state], writes=result, mutates=mutates, callees=["body"])
    return builder.build()


@pytest.mark.parametrize("in_place", [False, True])
def test_the_state_of_a_loop_is_part_of_the_peak_of_its_body(in_place: bool) -> None:
    graph = _caller("while", in_place=in_place)
    assert transient_bytes(graph, {"body": {"device": 16}}).tolist() == [[0], [8]]


def test_other_ops_need_the_full_peak_of_their_callees() -> None:
    graph = _caller("Scan", in_place=True)
    assert transient_bytes(graph, {"body": {"device": 16}}).tolist() == [[0], [16]]


def test_persistent_buffers_that_a_call_mutates_are_not_part_of_its_result() -> None:
    """Variables passed to a function are persistent inside it too, so that its peak does not include them."""
    builder = GraphBuilder("caller")
    builder.add_subgraph("body", GraphBuilder("body").build())
    variable = builder.add_buffer("variable", 1000, Lifetime.PERSISTENT)
    result = builder.add_buffer("result", 8, Lifetime.OUTPUT)
    builder.add_op("call", "call", writes=[result], mutates=[variable], callees=["body"])
    assert transient_bytes(builder.build(), {"body": {"device": 24}}).tolist() == [[16]]
