"""Which orders of the ops are valid."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given

from lowtide.engine.graph import Graph
from lowtide.engine.graph.reorder import is_valid_order
from tests.strategies import graphs, random_graph


@given(graphs(4))
def test_an_order_is_valid_where_every_op_comes_after_its_predecessors(graph: Graph) -> None:
    predecessors = list(graph.structure.predecessors)
    for order in permutations(range(graph.n_ops)):
        after_all = all(order.index(before) < order.index(op) for op in order for before in predecessors[op])
        assert is_valid_order(graph, np.asarray(order, np.int32)) == after_all


@pytest.mark.parametrize("order", [[], [0], [0, 0, 1], [-1, 0, 1], [0, 1, 3], [0, 1, 2, 3]])
def test_what_is_no_permutation_of_the_ops_is_no_valid_order(order: list[int]) -> None:
    graph = random_graph(3, 3)
    assert graph.n_ops == 3
    assert not is_valid_order(graph, np.asarray(order, np.int32))
