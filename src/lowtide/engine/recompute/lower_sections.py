"""A base order for recomputation: wherever it needs more than the budget, no other order of that section needs less."""

from itertools import pairwise

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from lowtide.core.effort import SearchEffort
from lowtide.core.index_spaces import BufferId, OpId, Place
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.recompute.program import Drops, Program
from lowtide.engine.search import solve


def lower_sections(program: Program, budget: int, effort: SearchEffort) -> Order:
    """Return the base order of a program with every section above a budget in its order of least peak.

    An order of least peak is as it happens to be wherever it needs less than at its worst place. Reruns must clear all
    places above the budget, so that a second rise costs time that another order saves. The order is cut where it needs
    least between two rises; every section runs the same ops as before and leaves the same buffers behind.
    Never higher than the given order in any section. Deterministic; one search a section, and O(accesses).
    """
    order = program.order
    live = program.execute(Drops()).live
    ends = _between_rises(live, budget)
    sections = _Sections(program.problem, order)
    found = [
        sections.lowered(start, end, effort) if (live[start:end] > budget).any() else order[start:end]
        for start, end in pairwise([0, *ends, len(order)])
    ]
    return np.concatenate(found).astype(np.int32)


def _between_rises(live: NDArray[np.int64], budget: int) -> list[Place]:
    """Return where least is needed between two stretches of places above the budget that follow one another."""
    edges = np.flatnonzero(np.diff(live > budget, prepend=False, append=False))
    falls, rises = edges[1:-1:2].tolist(), edges[2::2].tolist()
    return [fall + int(live[fall:rise].argmin()) for fall, rise in zip(falls, rises, strict=True)]


class _Sections:
    """An order of which any section can be searched as a graph of its own."""

    def __init__(self, problem: Problem, order: Order) -> None:
        self.problem = problem
        self.order: list[OpId] = order.tolist()
        self.ops = list(problem.graph.ops())
        self.touches: list[list[BufferId]] = list(problem.graph.structure.touches)
        self.allocates: list[list[BufferId]] = list(problem.graph.structure.allocates)
        places = np.empty(len(order), np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        self.last_place: list[Place] = [
            int(places[list(users)].max(initial=-1)) for users in problem.graph.structure.users
        ]

    def lowered(self, start: Place, end: Place, effort: SearchEffort) -> Order:
        """Return the ops of a section in the order of least peak that the search finds."""
        inner = Problem(self.graph_of(start, end), in_place=self.problem.in_place)
        solution = solve(inner, [inner.given_order()], effort)
        return np.asarray(self.order[start:end], np.int32)[solution.order]

    def graph_of(self, start: Place, end: Place) -> Graph:
        """Return the graph of a section: what it is handed or leaves behind is there from its start or to its end."""
        graph, inside = self.problem.graph, self.order[start:end]
        builder = GraphBuilder(graph.name)
        for space in graph.spaces:
            builder.add_space(space.name)
        made = {buffer for op in inside for buffer in self.allocates[op]}
        known: dict[BufferId, BufferId] = {}
        for buffer in dict.fromkeys(each for op in inside for each in (*self.touches[op], *self.allocates[op])):
            lifetime = self._lifetime(buffer, buffer in made, self.last_place[buffer] >= end)
            name, size = graph.buffer_names[buffer], int(graph.sizes[buffer])
            known[buffer] = builder.add_buffer(name, size, lifetime, space=int(graph.buffer_spaces[buffer]))
        position = {op: place for place, op in enumerate(inside)}
        for op in inside:
            record = self.ops[op]
            builder.add(
                replace(
                    record,
                    reads=tuple(known[buffer] for buffer in record.reads),
                    writes=tuple(known[buffer] for buffer in record.writes),
                    mutates=tuple(known[buffer] for buffer in record.mutates),
                    after=tuple(position[earlier] for earlier in record.after if earlier in position),
                    in_place=tuple((known[read], known[written]) for read, written in record.in_place),
                    scratch_bytes=int(self.problem.transient[op, graph.scratch_spaces[op]]),
                    callees=(),
                )
            )
        return builder.build()

    def _lifetime(self, buffer: BufferId, is_made_here: bool, is_used_later: bool) -> Lifetime:
        """Return the lifetime class of a buffer within a section."""
        lifetime = Lifetime(int(self.problem.graph.lifetimes[buffer]))
        if lifetime.persistent:
            return lifetime
        stays = is_used_later or lifetime in (Lifetime.INPUT, Lifetime.OUTPUT)
        if is_made_here:
            return Lifetime.OUTPUT if stays else Lifetime.INTERMEDIATE
        return Lifetime.INPUT if stays else Lifetime.DONATED
