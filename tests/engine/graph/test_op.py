"""Ops as records and as columns are the same ops."""

from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.graph import Graph, GraphBuilder
from tests.strategies import graphs


@given(graphs())
def test_a_graph_built_from_the_records_of_its_ops_is_the_graph(graph: Graph) -> None:
    builder = GraphBuilder(graph.name)
    builder.copy_storage(graph)
    for name, subgraph in graph.subgraphs.items():
        builder.add_subgraph(name, subgraph)
    for op in graph.ops():
        builder.add(op)
    assert builder.build().fingerprint == graph.fingerprint


@given(graphs(), st.data())
def test_one_op_is_the_record_that_all_ops_hold_at_its_place(graph: Graph, data: st.DataObject) -> None:
    ops = list(graph.ops())
    assert len(ops) == graph.n_ops
    if ops:
        place = data.draw(st.integers(0, graph.n_ops - 1))
        assert graph.op(place) == ops[place]
