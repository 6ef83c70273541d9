"""What an op needs beside its buffers while it runs: the peak of what it calls, its own result counted once."""

import pytest

from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.graph.transient import transient_bytes


def _caller(kind: str, *, in_place: bool) -> Graph:
    """Return an op that calls a body over a state of 8 bytes, which it writes in place or into a buffer of its own."""
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
def test_the_state_that_a_loop_writes_is_in_the_peak_of_its_body_already(in_place: bool) -> None:
    graph = _caller("while", in_place=in_place)
    assert transient_bytes(graph, {"body": {"device": 16}}).tolist() == [[0], [8]]


def test_other_ops_need_the_whole_peak_of_what_they_call() -> None:
    graph = _caller("Scan", in_place=True)
    assert transient_bytes(graph, {"body": {"device": 16}}).tolist() == [[0], [16]]


def test_persistent_storage_that_a_call_may_write_is_no_part_of_its_result() -> None:
    """A function that is handed variables: they are persistent inside too, so that its own peak holds none of them."""
    builder = GraphBuilder("caller")
    builder.add_subgraph("body", GraphBuilder("body").build())
    variable = builder.add_buffer("variable", 1000, Lifetime.PERSISTENT)
    result = builder.add_buffer("result", 8, Lifetime.OUTPUT)
    builder.add_op("call", "call", writes=[result], mutates=[variable], callees=["body"])
    assert transient_bytes(builder.build(), {"body": {"device": 24}}).tolist() == [[16]]
