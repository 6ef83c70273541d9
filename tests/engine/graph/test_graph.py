"""What a graph says of its buffers and of the graphs it calls."""

import numpy as np
import pytest

from lowtide.engine.graph import Graph, GraphBuilder, Lifetime


def _one_of_each() -> Graph:
    builder = GraphBuilder("one of each class")
    for lifetime in Lifetime:
        builder.add_buffer(lifetime.name, 1, lifetime)
    builder.add_op("make", "make", writes=[Lifetime.INTERMEDIATE, Lifetime.OUTPUT])
    return builder.build()


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        ("persistent", {"PERSISTENT"}),
        ("exists_at_start", {"PERSISTENT", "INPUT", "DONATED"}),
        ("exists_at_end", {"PERSISTENT", "INPUT", "OUTPUT"}),
        ("counted_at_start", {"INPUT", "DONATED"}),
        ("counted_at_end", {"INPUT", "OUTPUT"}),
        ("freeable", {"DONATED", "INTERMEDIATE"}),
    ],
)
def test_a_mask_holds_the_buffers_of_its_lifetime_classes(mask: str, names: set[str]) -> None:
    graph = _one_of_each()
    chosen = getattr(graph, mask)
    assert {graph.buffer_names[buffer] for buffer in np.flatnonzero(chosen)} == names
    assert not chosen.flags.writeable


def test_called_names_every_callee_once_in_the_order_of_the_first_call() -> None:
    innermost, inner = GraphBuilder("innermost").build(), GraphBuilder("inner").build()
    builder = GraphBuilder("outer")
    builder.add_subgraph("a", inner)
    builder.add_subgraph("b", inner)
    builder.add_subgraph("not called", innermost)
    builder.add_op("first", "call", callees=["b"])
    builder.add_op("second", "call", callees=["a", "b"])
    assert builder.build().called == ("b", "a")
