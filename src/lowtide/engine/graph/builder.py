"""Builds a graph in program order."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lowtide.core.errors import GraphError
from lowtide.core.index_spaces import BufferId, OpId, SpaceId
from lowtide.engine.graph.check import check_graph
from lowtide.engine.graph.graph import Graph, Lifetime, Space
from lowtide.engine.graph.op import Op, joined_columns, op_columns
from lowtide.engine.graph.rows import exact_sizes, exact_spaces


class GraphBuilder:
    """Collects spaces, buffers and ops in program order, then builds a checked graph.

    Use the buffer of its base for a view. An op that only uses metadata (a shape, `*_like`) does not read the buffer.

    >>> from lowtide import GraphBuilder, Lifetime
    >>> builder = GraphBuilder("one layer")
    >>> x = builder.add_buffer("x", 1024, Lifetime.INPUT)
    >>> y = builder.add_buffer("y", 1024, Lifetime.OUTPUT)
    >>> layer = builder.add_op("layer", "relu", reads=[x], writes=[y])
    >>> builder.build().n_ops
    1
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._spaces: list[Space] = []
        self._buffer_names: list[str] = []
        self._sizes: list[int] = []
        self._lifetimes: list[int] = []
        self._buffer_spaces: list[SpaceId] = []
        self._ops: list[Op] = []
        self._columns: list[dict[str, Any]] = []
        self._n_ops = 0
        self._subgraphs: dict[str, Graph] = {}
        self._notes: list[str] = []

    def add_space(
        self,
        name: str,
        *,
        capacity_bytes: int | None = None,
        alignment: int = 1,
        bandwidth_bytes_per_s: Mapping[str, float] | None = None,
    ) -> SpaceId:
        """Add a memory space and return its id. By default there is one, "device"."""
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
        self, name: str, size_bytes: int, lifetime: Lifetime = Lifetime.INTERMEDIATE, *, space: SpaceId = 0
    ) -> BufferId:
        """Add a buffer and return its id."""
        self._buffer_names.append(name)
        self._sizes.append(size_bytes)
        self._lifetimes.append(lifetime)
        self._buffer_spaces.append(space)
        return len(self._buffer_names) - 1

    def add_buffers(
        self,
        names: Iterable[str],
        sizes: Iterable[int],
        lifetimes: Iterable[Lifetime],
        spaces: Iterable[SpaceId],
    ) -> None:
        """Add buffers with consecutive ids, faster than one by one."""
        self._buffer_names.extend(names)
        self._sizes.extend(sizes)
        self._lifetimes.extend(lifetimes)
        self._buffer_spaces.extend(spaces)

    def copy_spaces(self, graph: Graph) -> None:
        """Add the memory spaces of a graph."""
        self._spaces.extend(graph.spaces)

    def copy_storage(self, graph: Graph) -> None:
        """Add the memory spaces and buffers of a graph."""
        self.copy_spaces(graph)
        self.add_buffers(
            graph.buffer_names, graph.sizes.tolist(), graph.lifetimes.tolist(), graph.buffer_spaces.tolist()
        )

    def set_lifetime(self, buffer: BufferId, lifetime: Lifetime) -> None:
        """Change the lifetime class of a buffer."""
        self._lifetimes[buffer] = lifetime

    def add_op(
        self,
        name: str,
        kind: str,
        *,
        reads: Sequence[BufferId] = (),
        writes: Sequence[BufferId] = (),
        mutates: Sequence[BufferId] = (),
        after: Sequence[OpId] = (),
        in_place: Iterable[tuple[BufferId, BufferId]] = (),
        scratch_bytes: int = 0,
        pure: bool = True,
        ordered: bool = False,
        repeatable: bool = False,
        cost: float = 1.0,
        flops: float | None = None,
        traffic_bytes: int | None = None,
        ranks: int = 1,
        rank_span: int = 1,
        callees: Sequence[str] = (),
        device: str | None = None,
        source: str | None = None,
    ) -> OpId:
        """Add an op at the end of the program and return its id.

        `mutates` are existing buffers that the op writes into. `in_place` are optional pairs (read buffer, written
        buffer) of equal size: the written one may take over the other's storage. A `repeatable` op may be recomputed
        although it is impure or ordered. `cost` is in seconds, 1.0 if unknown. `traffic_bytes` are those of operands
        and results. A collective runs on `ranks` processes among `rank_span` consecutive ranks. `source` is the place
        in the user's program.
        """
        return self.add(
            Op(
                name=name,
                kind=kind,
                reads=tuple(reads),
                writes=tuple(writes),
                mutates=tuple(mutates),
                after=tuple(after),
                in_place=tuple(in_place),
                scratch_bytes=scratch_bytes,
                pure=pure,
                ordered=ordered,
                repeatable=repeatable,
                cost=cost,
                flops=flops,
                traffic_bytes=traffic_bytes,
                ranks=ranks,
                rank_span=rank_span,
                callees=tuple(callees),
                device=device,
                source=source,
            )
        )

    def add(self, op: Op) -> OpId:
        """Add an op at the end of the program and return its id."""
        self._ops.append(op)
        self._n_ops += 1
        return self._n_ops - 1

    def add_ops(self, ops: Iterable[Op]) -> None:
        """Add ops in arrays, which need less memory; raises GraphError for ids out of range."""
        before = len(self._ops)
        self._ops.extend(ops)
        self._n_ops += len(self._ops) - before
        self._columns.append(op_columns(self._ops))
        self._ops = []

    def add_subgraph(self, name: str, graph: Graph) -> None:
        """Add a graph that ops may call; raises GraphError if the name is in use."""
        for key, subgraph in {**graph.subgraphs, name: graph}.items():
            known = self._subgraphs.setdefault(key, subgraph)
            if known is not subgraph and known.fingerprint != subgraph.fingerprint:
                raise GraphError(f"two different subgraphs are named {key!r}; names must be unique")

    def note(self, sentence: str) -> None:
        """Record a fact that the graph does not model."""
        self._notes.append(sentence)

    def build(self) -> Graph:
        """Return the graph; raises GraphError for the first violation."""
        graph = Graph(
            name=self._name,
            spaces=tuple(self._spaces) or (Space(name="device"),),
            buffer_names=tuple(self._buffer_names),
            subgraphs=dict(self._subgraphs),
            unmodeled=tuple(self._notes),
            sizes=exact_sizes(self._sizes, "buffer", self._buffer_names),
            buffer_spaces=exact_spaces(self._buffer_spaces, self._buffer_names),
            lifetimes=np.asarray(self._lifetimes, np.uint8),
            **joined_columns([*self._columns, op_columns(self._ops)]),
        )
        check_graph(graph)
        return graph
