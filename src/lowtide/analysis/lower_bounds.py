"""Bounds that no order can beat."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.analysis.problem import Problem
from lowtide.graph import Lifetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBound:
    """The least peak any order can have in one memory space, and why."""

    space: str
    peak_bytes: int
    op: int | None
    """The op that cannot run with less; None when the inputs or the outputs alone need that much."""


def largest_op_bound(problem: Problem) -> list[LowerBound]:
    """Return, per memory space, the most that a single op needs resident at once, whatever the order. O(n + e).

    An op needs what it touches, what it allocates, its transient bytes, and the inputs that the caller keeps. Where
    in-place pairs may be taken, the best case is assumed: every buffer it could take over dies there.
    Before the first op all inputs are there, after the last one all outputs.
    """
    graph, structure = problem.graph, problem.graph.structure
    counted = graph.sizes * (graph.lifetimes != Lifetime.PERSISTENT)
    kept = graph.lifetimes == Lifetime.INPUT
    bounds: list[LowerBound] = []
    for position, space in enumerate(graph.spaces):
        here = graph.buffer_spaces == position
        sizes = counted * here
        always = int(sizes[kept].sum())
        sizes = sizes * ~kept
        needs = problem.transient[:, position] + always
        for rows in (structure.touches, structure.allocates):
            np.add.at(needs, rows.owners(), sizes[rows.values])
        if problem.in_place:
            needs = needs - _most_saved_in_place(problem, sizes.tolist())
        donated = int(sizes[graph.lifetimes == Lifetime.DONATED].sum())
        outputs = int(sizes[graph.lifetimes == Lifetime.OUTPUT].sum())
        edges = always + max(donated, outputs)
        largest = int(needs.max(initial=0))
        op = int(needs.argmax()) if largest > edges else None
        bounds.append(LowerBound(space=space.name, peak_bytes=max(largest, edges), op=op))
    return bounds


def _most_saved_in_place(problem: Problem, sizes: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    graph = problem.graph
    saved = np.zeros(graph.n_ops, np.int64)
    for op in np.flatnonzero(np.diff(graph.in_place.offsets)).tolist():
        flat = graph.in_place[op].tolist()
        saved[op] = min(
            sum(sizes[buffer] for buffer in set(flat[1::2])), sum(sizes[buffer] for buffer in set(flat[::2]))
        )
    return saved
