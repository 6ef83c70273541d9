"""The printed form names every subgraph once, however often graphs call one another."""

from lowtide.engine.graph import Graph, GraphBuilder
from tests.oracles.graph_text import format_graph


def _layer(name: str, callees: list[Graph]) -> Graph:
    builder = GraphBuilder(name)
    for callee in callees:
        builder.add_subgraph(callee.name, callee)
        builder.add_op(f"call {callee.name}", "call", callees=[callee.name])
    return builder.build()


def test_subgraphs_that_call_one_another_in_every_way_are_printed_once_each() -> None:
    """Thirty graphs that each call all earlier ones: following every call would print a thousand million graphs."""
    graphs: list[Graph] = []
    for number in range(30):
        graphs.append(_layer(f"g{number}", graphs))
    text = format_graph(graphs[-1])
    assert text.count("subgraph ") == 29
