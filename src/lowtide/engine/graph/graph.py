"""The graph: an immutable program over buffers, stored in flat arrays."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, SpaceId
from lowtide.engine.graph.lifetime import Lifetime
from lowtide.engine.graph.op import OpColumns
from lowtide.engine.graph.rows import Ids
from lowtide.engine.graph.space import Space
from lowtide.engine.graph.structure import Structure, derive_structure

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """One buffer, as people look at it."""

    id: BufferId
    name: str
    size_bytes: int
    lifetime: Lifetime
    space: SpaceId


@dataclass(frozen=True, eq=False, kw_only=True)
class Graph(OpColumns):
    """A program: ops in a valid order, the buffers they touch, the memory spaces those live in.

    Ids are positions. Every array is read-only and has one entry per buffer or per op; `Rows` hold one list per op.
    Build one with `GraphBuilder`, which checks it; views are contracted to their base buffer before they get here.
    """

    name: str
    spaces: tuple[Space, ...]
    buffer_names: Sequence[str]
    sizes: NDArray[np.int64]
    """Bytes of every buffer."""
    lifetimes: NDArray[np.uint8]
    """`Lifetime` of every buffer."""
    buffer_spaces: NDArray[np.int16]
    """Position in `spaces` of every buffer."""
    subgraphs: Mapping[str, "Graph"] = field(default_factory=dict[str, "Graph"])
    """Graphs that ops call, by name; a subgraph finds its own callees here too."""
    unmodeled: tuple[str, ...] = ()
    """What the reader could not model, one sentence each."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {self.n_ops} ops, {self.n_buffers} buffers)"

    @property
    def n_ops(self) -> int:
        """Number of ops."""
        return len(self.op_names)

    @property
    def n_buffers(self) -> int:
        """Number of buffers."""
        return len(self.buffer_names)

    @cached_property
    def persistent(self) -> Mask:
        """Per buffer, whether it is persistent: no peak counts it."""
        return self._in_classes(lambda lifetime: lifetime.persistent)

    @cached_property
    def exists_at_start(self) -> Mask:
        """Per buffer, whether it is there before the first op runs."""
        return self._in_classes(lambda lifetime: lifetime.exists_at_start)

    @cached_property
    def exists_at_end(self) -> Mask:
        """Per buffer, whether every plan must leave it there after the last op."""
        return self._in_classes(lambda lifetime: not lifetime.freeable)

    @cached_property
    def counted_at_start(self) -> Mask:
        """Per buffer, whether the peak counts it before the first op runs."""
        return self._in_classes(lambda lifetime: lifetime.exists_at_start and not lifetime.persistent)

    @cached_property
    def counted_at_end(self) -> Mask:
        """Per buffer, whether every plan leaves it there after the last op and the peak counts it."""
        return self._in_classes(lambda lifetime: not lifetime.freeable and not lifetime.persistent)

    @cached_property
    def freeable(self) -> Mask:
        """Per buffer, whether a plan may free it after its last use."""
        return self._in_classes(lambda lifetime: lifetime.freeable)

    def _in_classes(self, chosen: Callable[[Lifetime], bool]) -> Mask:
        mask = np.array([chosen(lifetime) for lifetime in Lifetime])[self.lifetimes]
        mask.setflags(write=False)
        return mask

    @cached_property
    def called(self) -> tuple[str, ...]:
        """Names of the graphs that ops call, in the order of the first call; what those call is not among them."""
        return tuple(dict.fromkeys(name for names in self.callees for name in names))

    @cached_property
    def structure(self) -> Structure:
        """Dependencies between ops and the users of every buffer, derived once."""
        return derive_structure(self.lifetimes, self.reads, self.writes, self.mutates, self.after, self.ordered)

    @cached_property
    def scratch_spaces(self) -> Ids:
        """Memory space of every op's scratch: the one its device names, else the first."""
        by_name = {space.name: position for position, space in enumerate(self.spaces)}
        return np.fromiter(
            (0 if device is None else by_name.get(device, 0) for device in self.devices), np.int32, self.n_ops
        )

    @cached_property
    def call_depth(self) -> int:
        """How deep calls nest: 1 where no op calls a graph."""
        return 1 + max((self.subgraphs[name].call_depth for name in self.called), default=0)

    @cached_property
    def most_bytes(self) -> int:
        """Bytes that no plan can exceed, a loose bound.

        It is every buffer twice, since a rerun writes beside the old copy, plus the most that an op's scratch and
        callees take.
        """
        transient = int(self.scratch.max(initial=0))
        for op, names in enumerate(self.callees):
            if names:
                inner = max(self.subgraphs[name].most_bytes for name in names)
                transient = max(transient, int(self.scratch[op]) + inner)
        return 2 * int(self.sizes.sum()) + transient

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over everything a plan depends on, as hex; the graph's own name and remarks are left out."""
        digest = hashlib.sha256(b"lowtide graph 1\n")
        for space in self.spaces:
            links = sorted((other, float(speed)) for other, speed in space.bandwidth_bytes_per_s.items())
            digest.update(repr((space.name, space.capacity_bytes, space.alignment, links)).encode())
        for names in (self.buffer_names, self.op_names, self.op_kinds):
            digest.update(repr(list(names)).encode())
        digest.update(repr([entry for entry in enumerate(self.callees) if entry[1]]).encode())
        digest.update(repr([entry for entry in enumerate(self.devices) if entry[1] is not None]).encode())
        for rows in (self.reads, self.writes, self.mutates, self.after, self.in_place):
            digest.update(rows.offsets.astype("<i8").tobytes() + rows.values.astype("<i4").tobytes())
        for array in (self.sizes, self.lifetimes, self.buffer_spaces, self.scratch, self.pure, self.ordered, self.cost):
            digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
        if not np.isnan(self.flops).all():
            digest.update(self.flops.astype("<f8").tobytes())
        if not np.isnan(self.traffic).all():
            digest.update(self.traffic.astype("<f8").tobytes())
        if (self.rank_spans > 1).any():
            digest.update(self.ranks.astype("<i4").tobytes() + self.rank_spans.astype("<i4").tobytes())
        for name in sorted(self.called):
            digest.update(f"{name} {self.subgraphs[name].fingerprint}\n".encode())
        return digest.hexdigest()

    def buffer(self, buffer: BufferId) -> Buffer:
        """Return one buffer by id."""
        return Buffer(
            id=buffer,
            name=self.buffer_names[buffer],
            size_bytes=int(self.sizes[buffer]),
            lifetime=Lifetime(int(self.lifetimes[buffer])),
            space=int(self.buffer_spaces[buffer]),
        )

    def persistent_bytes(self) -> dict[str, int]:
        """Bytes of persistent buffers, by memory space name."""
        return self.bytes_by_space(self.persistent)

    def bytes_by_space(self, chosen: Mask) -> dict[str, int]:
        """Bytes of the chosen buffers (a mask over all), by memory space name."""
        return {
            space.name: int(self.sizes[chosen & (self.buffer_spaces == position)].sum())
            for position, space in enumerate(self.spaces)
        }
