"""An ordered program under edit: what recomputation and offload planners ask thousands of times."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.analysis.problem import Evaluation, Order, Problem
from lowtide.errors import GraphError
from lowtide.graph import Graph, Lifetime
from lowtide.graph.edit import NewOp, append_buffer, insert_op, permute_ops, set_after, set_read
from lowtide.plan import Plan


@dataclass(frozen=True, eq=False)
class _Version:
    """A graph whose program order is the order under edit, and the handle of every op in it."""

    graph: Graph
    handles: NDArray[np.int32]
    next_handle: int

    @cached_property
    def places(self) -> NDArray[np.int32]:
        """Place of every handle, -1 for removed ops."""
        places = np.full(self.next_handle, -1, np.int32)
        places[self.handles] = np.arange(len(self.handles), dtype=np.int32)
        return places


class Session:
    """A graph and an order of its ops, edited one op or edge at a time.

    Ops are named by handles, which edits never change: an op's number in the graph at first, the next free number for
    an op added later. Buffers keep their ids. The order is always valid: an edit that makes an op wait for another one
    after it moves that one, and what it depends on, to right before; what an op added in between reads is what the
    order holds there. An edit that cannot be made raises GraphError and changes nothing.

    Everything is derived anew from flat arrays after an edit, which native code does in about a millisecond for 5,000
    ops: O(n + e) per edit, and the same as for a graph built from nothing.
    """

    def __init__(
        self, graph: Graph, order: Order, *, callees: Mapping[str, Plan] | None = None, in_place: bool = True
    ) -> None:
        """Start from a valid order of a graph; `callees` and `in_place` as for `Problem`."""
        self._callees = callees or {}
        self._in_place = in_place
        self._version = _Version(permute_ops(graph, order), order, graph.n_ops)
        self._problem: Problem | None = None

    @property
    def graph(self) -> Graph:
        """The graph as it stands; its program order is the order."""
        return self._version.graph

    @property
    def order(self) -> NDArray[np.int32]:
        """Handles of all ops in order."""
        return self._version.handles

    @property
    def problem(self) -> Problem:
        """The graph made ready for ordering."""
        if self._problem is None:
            self._problem = Problem(self.graph, self._callees, self._in_place)
        return self._problem

    def evaluate(self) -> Evaluation:
        """Return what the order costs; places in it count along `order`."""
        return self.problem.evaluate(self.problem.given_order())

    def worst_op(self, space: int = 0) -> int | None:
        """Return the handle of the op at the peak of a memory space; None when the inputs alone set it."""
        place = int(self.evaluate().peak_places[space])
        return int(self.order[place]) if place >= 0 else None

    def bound(self, op: int, space: int = 0) -> int:
        """Return the least bytes with which an op can run in any order of the graph as it stands."""
        return _native.ClosureCutter(self.problem.native, space, self._in_place).cut(self._place(op))[0]

    def state(self) -> object:
        """Return where the session stands, to come back to with `restore`. O(1)."""
        return self._version

    def restore(self, state: object) -> None:
        """Undo every edit since `state` was taken; raises GraphError for what is no state. O(1)."""
        if not isinstance(state, _Version):
            raise GraphError(f"a session cannot go back to a {type(state).__name__}; pass what state() returned")
        self._set(state)

    def add_buffer(self, name: str, size_bytes: int, lifetime: Lifetime = Lifetime.INTERMEDIATE, space: int = 0) -> int:
        """Add a buffer and return its id."""
        if name in self.graph.buffer_names:
            raise GraphError(f"there is a buffer {name!r} already; names must be unique")
        if not 0 <= size_bytes < 2**62 or not 0 <= space < len(self.graph.spaces):
            raise GraphError(f"buffer {name!r} of {size_bytes} bytes in memory space {space}: out of range")
        self._set(replace(self._version, graph=append_buffer(self.graph, name, size_bytes, lifetime, space)))
        return self.graph.n_buffers - 1

    def add_op(self, op: NewOp, before: int | None = None) -> int:
        """Add an op right before another one, or at the end, and return its handle; `op.after` holds handles."""
        self._check(op)
        place = self.graph.n_ops if before is None else self._place(before)
        producers = self.graph.structure.producers
        needed = [int(producers[buffer]) for buffer in (*op.reads, *op.mutates, *op.writes) if producers[buffer] >= 0]
        version = self._pulled([*needed, *map(self._place, op.after)], place)
        place = self.graph.n_ops if before is None else int(version.places[before])
        handles = np.insert(version.handles, place, version.next_handle)
        placed = replace(op, after=[int(version.places[handle]) for handle in op.after])
        graph = insert_op(version.graph, place, placed)
        self._set(_Version(graph, handles, version.next_handle + 1))
        return version.next_handle

    def remove_op(self, op: int) -> None:
        """Remove an op that nobody needs: no op uses what it allocates, and that is no output."""
        place = self._place(op)
        for buffer in self.graph.structure.allocates[place].tolist():
            if len(self.graph.structure.users[buffer]) or self.graph.lifetimes[buffer] == Lifetime.OUTPUT:
                raise GraphError(
                    f"op {self.graph.op_names[place]!r} cannot go: {self.graph.buffer_names[buffer]!r} is still used; "
                    "remove its users first"
                )
        order = np.delete(np.arange(self.graph.n_ops, dtype=np.int32), place)
        self._set(replace(self._version, graph=permute_ops(self.graph, order), handles=self.order[order]))

    def add_edge(self, earlier: int, later: int) -> None:
        """Make an op wait for another one."""
        version = self._pulled([self._place(earlier)], self._place(later))
        place = int(version.places[later])
        after = [*version.graph.after[place].tolist(), int(version.places[earlier])]
        self._set(replace(version, graph=set_after(version.graph, place, after)))

    def remove_edge(self, earlier: int, later: int) -> None:
        """Take a control edge back; data dependencies stay."""
        place, gone = self._place(later), self._place(earlier)
        after = self.graph.after[place].tolist()
        if gone not in after:
            raise GraphError(f"there is no control edge from op {earlier} to op {later}; add one before removing it")
        self._set(replace(self._version, graph=set_after(self.graph, place, [op for op in after if op != gone])))

    def replace_read(self, op: int, old: int, new: int) -> None:
        """Let an op read another buffer in place of one it reads now."""
        place = self._place(op)
        if old not in self.graph.reads[place].tolist() or not 0 <= new < self.graph.n_buffers:
            raise GraphError(f"op {op} cannot read buffer {new} in place of {old}; it must read {old} now")
        self._check_written(new, self.graph.op_names[place])
        producer = int(self.graph.structure.producers[new])
        version = self._pulled([producer] if producer >= 0 else [], place)
        self._set(replace(version, graph=set_read(version.graph, int(version.places[op]), old, new)))

    def _check(self, op: NewOp) -> None:
        graph = self.graph
        if op.name in graph.op_names:
            raise GraphError(f"there is an op {op.name!r} already; names must be unique")
        if not 0 <= op.scratch_bytes < 2**62:
            raise GraphError(f"op {op.name!r} has {op.scratch_bytes} bytes of scratch; give 0 to 2^62")
        for name in op.callees:
            if name not in graph.subgraphs:
                raise GraphError(f"op {op.name!r} calls graph {name!r}, which is not among the subgraphs")
        for buffer in (*op.reads, *op.mutates, *op.writes):
            if not 0 <= buffer < graph.n_buffers:
                raise GraphError(f"op {op.name!r} uses buffer {buffer}; there are only {graph.n_buffers}")
        for read, written in op.in_place:
            if read not in op.reads or written not in op.writes or read == written:
                raise GraphError(
                    f"op {op.name!r}: pair {read}, {written} must be a buffer it reads and another it writes"
                )
        for buffer in (*op.reads, *op.mutates):
            self._check_written(buffer, op.name)

    def _check_written(self, buffer: int, reader: str) -> None:
        if self.graph.structure.producers[buffer] < 0 and self.graph.lifetimes[buffer] >= Lifetime.INTERMEDIATE:
            name = self.graph.buffer_names[buffer]
            raise GraphError(f"op {reader!r} cannot use buffer {name!r}: nothing writes it; add its writer first")

    def _set(self, version: _Version) -> None:
        self._version, self._problem = version, None

    def _place(self, op: int) -> int:
        place = int(self._version.places[op]) if 0 <= op < self._version.next_handle else -1
        if place < 0:
            raise GraphError(f"there is no op {op} in this session; name ops by the handles it gave")
        return place

    def _pulled(self, needed: Iterable[int], place: int) -> _Version:
        """Return the program with `needed` places, and what those depend on, moved to before `place`."""
        late: set[int] = set()
        waiting = [op for op in needed if op >= place]
        predecessors = self.graph.structure.predecessors
        while waiting:
            op = waiting.pop()
            if op == place:
                raise GraphError(f"op {self.graph.op_names[place]!r} would wait for itself; the edit closes a cycle")
            if op not in late:
                late.add(op)
                waiting += [earlier for earlier in predecessors[op].tolist() if earlier >= place]
        if not late:
            return self._version
        rest = np.arange(self.graph.n_ops, dtype=np.int32)
        moved = np.isin(rest, np.array(sorted(late), np.int32))
        before = rest < place
        order = np.concatenate([rest[before], rest[moved], rest[~before & ~moved]])
        graph = permute_ops(self.graph, order)
        return replace(self._version, graph=graph, handles=self.order[order])
