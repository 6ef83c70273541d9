"""The oracle of addresses: every pair of rows compared at every instant."""

from itertools import combinations

from lowtide.engine.graph import Graph
from lowtide.engine.plan import Address, Plan
from tests.oracles.records import buffer_of


def addresses_are_sound(graph: Graph, plan: Plan) -> bool:
    """Say whether offsets are aligned, within the arena and free of overlaps; rows are taken to be complete."""
    for row in plan.addresses:
        space = graph.spaces[row.space]
        end = row.offset + buffer_of(graph, row.buffer).size_bytes
        if row.offset < 0 or row.offset % space.alignment or end > plan.arena_bytes.get(space.name, end):
            return False
    return not any(_clash(graph, one, two) for one, two in combinations(plan.addresses, 2))


def _clash(graph: Graph, one: Address, two: Address) -> bool:
    if one.space != two.space or not _instants(graph, one) & _instants(graph, two):
        return False
    return bool(set(_bytes(graph, one)) & set(_bytes(graph, two)))


def _bytes(graph: Graph, row: Address) -> range:
    return range(row.offset, row.offset + buffer_of(graph, row.buffer).size_bytes)


def _instants(graph: Graph, row: Address) -> set[int]:
    """Return the steps at which a row holds its bytes; inputs also hold them before the first step, at -1."""
    buffer = buffer_of(graph, row.buffer)
    at_start = buffer.lifetime.exists_at_start and row.first_step <= 0 and row.space == buffer.space
    return {*range(max(row.first_step, 0), row.last_step), *([-1] if at_start else [])}
