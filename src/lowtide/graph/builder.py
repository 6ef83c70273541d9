"""Build a graph step by step; the one way from a framework's program to a `Graph`."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lowtide.errors import GraphError
from lowtide.graph.check import check_graph, exact_rows, exact_sizes, exact_spaces
from lowtide.graph.graph import Graph
from lowtide.graph.lifetime import Lifetime
from lowtide.graph.space import Space


class GraphBuilder:
    """Collects spaces, buffers and ops in program order, then checks and freezes them.

    A view is neither an op nor a buffer: map its value to the base's buffer id, so that whoever reads the view reads
    the base. An op that only looks at metadata (a shape, `*_like`) does not read the buffer.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._spaces: list[Space] = []
        self._buffer_names: list[str] = []
        self._sizes: list[int] = []
        self._lifetimes: list[int] = []
        self._buffer_spaces: list[int] = []
        self._op_names: list[str] = []
        self._op_kinds: list[str] = []
        self._reads: list[Sequence[int]] = []
        self._writes: list[Sequence[int]] = []
        self._mutates: list[Sequence[int]] = []
        self._after: list[Sequence[int]] = []
        self._in_place: list[Sequence[int]] = []
        self._scratch: list[int] = []
        self._pure: list[bool] = []
        self._ordered: list[bool] = []
        self._cost: list[float] = []
        self._flops: list[float] = []
        self._callees: list[tuple[str, ...]] = []
        self._devices: list[str | None] = []
        self._subgraphs: dict[str, Graph] = {}
        self._notes: list[str] = []

    def add_space(
        self,
        name: str,
        *,
        capacity_bytes: int | None = None,
        alignment: int = 1,
        bandwidth_bytes_per_s: Mapping[str, float] | None = None,
    ) -> int:
        """Add a memory space and return its id; without any, buffers live in one space named "device"."""
        self._spaces.append(
            Space(
                name=name,
                capacity_bytes=capacity_bytes,
                alignment=alignment,
                bandwidth_bytes_per_s=dict(bandwidth_bytes_per_s or {}),
            )
        )
        return len(self._spaces) - 1

    def add_buffer(
        self, name: str, size_bytes: int, lifetime: Lifetime = Lifetime.INTERMEDIATE, *, space: int = 0
    ) -> int:
        """Add a buffer and return its id."""
        self._buffer_names.append(name)
        self._sizes.append(size_bytes)
        self._lifetimes.append(lifetime)
        self._buffer_spaces.append(space)
        return len(self._buffer_names) - 1

    def copy_storage(self, graph: Graph) -> None:
        """Add the memory spaces and buffers of a graph, which keep their ids in an empty builder."""
        self._spaces.extend(graph.spaces)
        self._buffer_names.extend(graph.buffer_names)
        self._sizes.extend(graph.sizes.tolist())
        self._lifetimes.extend(graph.lifetimes.tolist())
        self._buffer_spaces.extend(graph.buffer_spaces.tolist())

    def set_lifetime(self, buffer: int, lifetime: Lifetime) -> None:
        """Change the lifetime class of a buffer added before."""
        self._lifetimes[buffer] = lifetime

    def add_op(
        self,
        name: str,
        kind: str,
        *,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        mutates: Sequence[int] = (),
        after: Sequence[int] = (),
        in_place: Iterable[Sequence[int]] = (),
        scratch_bytes: int = 0,
        pure: bool = True,
        ordered: bool = False,
        cost: float = 1.0,
        flops: float | None = None,
        callees: Sequence[str] = (),
        device: str | None = None,
    ) -> int:
        """Add an op at the end of the program and return its id.

        `mutates` are existing buffers the op writes into; `in_place` are (read buffer, written buffer) pairs the op
        may use when the read one dies at it and both have one size; `flops` are floating-point operations, None where
        they are not known.
        """
        self._op_names.append(name)
        self._op_kinds.append(kind)
        self._reads.append(reads)
        self._writes.append(writes)
        self._mutates.append(mutates)
        self._after.append(after)
        self._in_place.append([buffer for pair in in_place for buffer in pair])
        self._scratch.append(scratch_bytes)
        self._pure.append(pure)
        self._ordered.append(ordered)
        self._cost.append(cost)
        self._flops.append(math.nan if flops is None else flops)
        self._callees.append(tuple(callees))
        self._devices.append(device)
        return len(self._op_names) - 1

    def add_subgraph(self, name: str, graph: Graph) -> None:
        """Add a graph that ops may call by this name, and the graphs it calls in turn.

        Raises GraphError when another graph has this name already.
        """
        for key, subgraph in {**graph.subgraphs, name: graph}.items():
            known = self._subgraphs.setdefault(key, subgraph)
            if known is not subgraph and known.fingerprint != subgraph.fingerprint:
                raise GraphError(f"two subgraphs are named {key!r} and differ; names must be unique")

    def note(self, sentence: str) -> None:
        """Record something the graph does not model; it is shown with every result."""
        self._notes.append(sentence)

    def build(self) -> Graph:
        """Check everything and return the immutable graph; raises GraphError with the first thing that is wrong."""
        graph = Graph(
            name=self._name,
            spaces=tuple(self._spaces) or (Space(name="device"),),
            buffer_names=tuple(self._buffer_names),
            op_names=tuple(self._op_names),
            op_kinds=tuple(self._op_kinds),
            callees=tuple(self._callees),
            devices=tuple(self._devices),
            subgraphs=dict(self._subgraphs),
            unmodeled=tuple(self._notes),
            sizes=exact_sizes(self._sizes, "buffer", self._buffer_names),
            scratch=exact_sizes(self._scratch, "scratch of op", self._op_names),
            buffer_spaces=exact_spaces(self._buffer_spaces, self._buffer_names),
            lifetimes=np.asarray(self._lifetimes, np.uint8),
            pure=np.asarray(self._pure, np.bool_),
            ordered=np.asarray(self._ordered, np.bool_),
            cost=np.asarray(self._cost, np.float64),
            flops=np.asarray(self._flops, np.float64),
            reads=exact_rows(self._reads, "reads", self._op_names),
            writes=exact_rows(self._writes, "writes", self._op_names),
            mutates=exact_rows(self._mutates, "mutates", self._op_names),
            after=exact_rows(self._after, "after", self._op_names),
            in_place=exact_rows(self._in_place, "in_place", self._op_names),
        )
        check_graph(graph)
        return graph
