"""Lower bounds for any plan, with recomputation and copies."""

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.graph.execution import transient_bytes


def needed_in_any_plan(graph: Graph, space: str, *, in_place: bool) -> int:
    """Return the most bytes that the start, the end or an op needs in any plan. O(n + e).

    Subtracts results written in place. Ignores called subgraphs.
    """
    position = [each.name for each in graph.spaces].index(space)
    structure, lifetimes = graph.structure, graph.lifetimes
    sizes = _counted_sizes(graph, position)
    at_start = int(sizes[(lifetimes == Lifetime.INPUT) | (lifetimes == Lifetime.DONATED)].sum())
    at_end = int(sizes[(lifetimes == Lifetime.INPUT) | (lifetimes == Lifetime.OUTPUT)].sum())
    comes_and_goes = np.where(lifetimes == Lifetime.INPUT, 0, sizes)
    needed = transient_bytes(graph, {})[:, position].copy()
    for rows in (structure.touches, structure.allocates):
        np.add.at(needed, rows.owners(), comes_and_goes[rows.values])
    if in_place:
        written = np.unique(_usable_pairs(graph, sizes)[:, 1])
        np.subtract.at(needed, structure.producers[written], sizes[written])
    return max(at_start, at_end, int(sizes[lifetimes == Lifetime.INPUT].sum()) + int(needed.max(initial=0)))


def needed_to_gather(graph: Graph, space: str, *, in_place: bool) -> int:
    """Return the most bytes live while an op's last operand is made, for the best last operand.

    Holds for any order and any reruns, without copies to the host. Ignores called subgraphs. O(operands * accesses of
    their producers).
    """
    position = [each.name for each in graph.spaces].index(space)
    structure, sizes = graph.structure, _counted_sizes(graph, position)
    stays = graph.lifetimes == Lifetime.INPUT
    always, sizes = int(sizes[stays].sum()), np.where(stays, 0, sizes)
    scratch = transient_bytes(graph, {})[:, position]
    usable: list[tuple[int, int]] = _usable_pairs(graph, sizes).tolist() if in_place else []
    pairs: dict[int, list[tuple[int, int]]] = {}
    for read, written in usable:
        pairs.setdefault(int(structure.producers[written]), []).append((read, written))

    def while_made(last: int, waiting: set[int]) -> int:
        producer = int(structure.producers[last])
        there = waiting | {*structure.touches[producer].tolist(), *structure.allocates[producer].tolist()}
        spared = {written for read, written in pairs.get(producer, []) if read not in waiting}
        return int(scratch[producer]) + sum(int(sizes[buffer]) for buffer in there - spared)

    most = 0
    for op in range(graph.n_ops):
        operands: set[int] = {*structure.touches[op].tolist()}
        made = [buffer for buffer in operands if structure.producers[buffer] >= 0]
        most = max(most, min((while_made(buffer, operands) for buffer in made), default=0))
    return always + most


def _counted_sizes(graph: Graph, position: int) -> NDArray[np.int64]:
    return np.where((graph.buffer_spaces == position) & ~graph.persistent, graph.sizes, 0)


def _usable_pairs(graph: Graph, sizes: NDArray[np.int64]) -> NDArray[np.int32]:
    pairs, owners = graph.in_place.values.reshape(-1, 2), graph.in_place.owners()[::2]
    read, written = pairs[:, 0], pairs[:, 1]
    usable = graph.freeable[read] & (graph.structure.producers[written] == owners)
    usable &= (sizes[read] == sizes[written]) & (sizes[written] > 0)
    return pairs[usable]
