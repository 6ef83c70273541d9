"""Dependencies, producers and users against their definitions."""

from hypothesis import given

from lowtide.engine.graph import Graph
from tests.oracles.naive_player import allocations, commute, uses
from tests.strategies import graphs, random_graph


def _closure(direct: list[set[int]]) -> list[set[int]]:
    """Return all ancestors per op; the direct ones come earlier in the program."""
    result: list[set[int]] = []
    for earlier in direct:
        result.append(earlier.union(*(result[op] for op in earlier)))
    return result


@given(graphs(max_ops=12))
def test_predecessors_order_exactly_the_ops_that_do_not_commute(graph: Graph) -> None:
    conflicts = [{i for i in range(j) if not commute(graph, i, j)} for j in range(graph.n_ops)]
    assert _closure([set(row) for row in graph.structure.predecessors]) == _closure(conflicts)


@given(graphs(max_ops=12))
def test_an_op_allocates_what_it_writes_first_and_touches_everything_else_it_uses(graph: Graph) -> None:
    fresh = allocations(graph)
    assert [set(row) for row in graph.structure.allocates] == fresh
    assert [set(row) for row in graph.structure.touches] == [uses(graph, op) - fresh[op] for op in range(graph.n_ops)]


@given(graphs(max_ops=12))
def test_users_and_producers_and_successors_are_the_reverse_of_touches_allocations_and_predecessors(
    graph: Graph,
) -> None:
    structure = graph.structure
    users = [[op for op, row in enumerate(structure.touches) if b in row] for b in range(graph.n_buffers)]
    assert list(structure.users) == users
    makers = [[op for op, row in enumerate(structure.allocates) if b in row] for b in range(graph.n_buffers)]
    assert [[op] if op >= 0 else [] for op in structure.producers.tolist()] == makers
    after = [[op for op, row in enumerate(structure.predecessors) if o in row] for o in range(graph.n_ops)]
    assert list(structure.successors) == after


def test_every_row_is_ascending_and_free_of_repeats_on_a_large_graph() -> None:
    structure = random_graph(seed=11, n_ops=5000).structure
    for rows in (structure.predecessors, structure.successors, structure.users, structure.touches, structure.allocates):
        assert all(row == sorted(set(row)) for row in rows)
