"""The graph: an immutable program over buffers, stored in flat arrays; its memory spaces and lifetime classes."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, SpaceId
from lowtide.engine.graph.op import OpColumns
from lowtide.engine.graph.rows import Ids
from lowtide.engine.graph.structure import Structure, derive_structure

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A memory space, such as device memory, host memory or an SRAM bank."""

    name: str
    capacity_bytes: int | None = None
    """None means unlimited."""
    alignment: int = 1
    """Every address in this space is a multiple of this many bytes."""
    bandwidth_bytes_per_s: Mapping[str, float] = field(default_factory=dict[str, float])
    """Speed of copies to other spaces, by name of the other space."""


class Lifetime(IntEnum):
    """The lifetime class of a buffer, independent of the order. Native kernels use the same numbers."""

    PERSISTENT = 0
    """Exists before, during and after the program, such as weights and optimizer state. Not part of the peak."""
    INPUT = 1
    """Exists from the start to the end: the caller owns it."""
    DONATED = 2
    """Exists from the start and is freed after its last use: the caller gave it up."""
    INTERMEDIATE = 3
    """Allocated by its first writer, freed after its last use."""
    OUTPUT = 4
    """Allocated by its first writer, exists to the end."""

    @property
    def persistent(self) -> bool:
        """Whether the buffer exists throughout and is not part of the peak."""
        return self is Lifetime.PERSISTENT

    @property
    def exists_at_start(self) -> bool:
        """Whether the buffer exists before the first op runs."""
        return self <= Lifetime.DONATED

    @property
    def freeable(self) -> bool:
        """Whether a plan may free the buffer after its last use."""
        return self in (Lifetime.DONATED, Lifetime.INTERMEDIATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """One buffer of a graph as an object."""

    id: BufferId
    name: str
    size_bytes: int
    lifetime: Lifetime
    space: SpaceId


@dataclass(frozen=True, eq=False, kw_only=True)
class Graph(OpColumns):
    """A program: ops in a valid order, the buffers they touch, and the memory spaces of the buffers.

    Ids are positions. Every array is read-only and has one entry per buffer or per op; `Rows` have one list per op.
    Build a graph with `GraphBuilder`, which checks it. A view is part of its base buffer.
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
    """Graphs that ops call, by name. Callees of these graphs are included."""
    unmodeled: tuple[str, ...] = ()
    """Parts of the program that the reader could not model, one sentence each."""

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
        """Mask of the persistent buffers, which are not part of any peak."""
        return self._in_classes(lambda lifetime: lifetime.persistent)

    @cached_property
    def exists_at_start(self) -> Mask:
        """Mask of the buffers that exist before the first op runs."""
        return self._in_classes(lambda lifetime: lifetime.exists_at_start)

    @cached_property
    def exists_at_end(self) -> Mask:
        """Mask of the buffers that must exist after the last op."""
        return self._in_classes(lambda lifetime: not lifetime.freeable)

    @cached_property
    def counted_at_start(self) -> Mask:
        """Mask of the buffers that exist before the first op and are part of the peak."""
        return self._in_classes(lambda lifetime: lifetime.exists_at_start and not lifetime.persistent)

    @cached_property
    def counted_at_end(self) -> Mask:
        """Mask of the buffers that exist after the last op and are part of the peak."""
        return self._in_classes(lambda lifetime: not lifetime.freeable and not lifetime.persistent)

    @cached_property
    def freeable(self) -> Mask:
        """Mask of the buffers that a plan may free after their last use."""
        return self._in_classes(lambda lifetime: lifetime.freeable)

    def _in_classes(self, chosen: Callable[[Lifetime], bool]) -> Mask:
        mask = np.array([chosen(lifetime) for lifetime in Lifetime])[self.lifetimes]
        mask.setflags(write=False)
        return mask

    @cached_property
    def called(self) -> tuple[str, ...]:
        """Names of the graphs that ops of this graph call directly, in order of the first call."""
        return tuple(dict.fromkeys(name for names in self.callees for name in names))

    @cached_property
    def structure(self) -> Structure:
        """Dependences between ops and the users of every buffer, computed once."""
        return derive_structure(self.lifetimes, self.reads, self.writes, self.mutates, self.after, self.ordered)

    @cached_property
    def scratch_spaces(self) -> Ids:
        """Memory space of every op's scratch: the space named like its device, else the first space."""
        by_name = {space.name: position for position, space in enumerate(self.spaces)}
        return np.fromiter(
            (0 if device is None else by_name.get(device, 0) for device in self.devices), np.int32, self.n_ops
        )

    @cached_property
    def call_depth(self) -> int:
        """Depth of nested calls: 1 if no op calls a graph."""
        return 1 + max((self.subgraphs[name].call_depth for name in self.called), default=0)

    @cached_property
    def most_bytes(self) -> int:
        """A loose upper bound on the bytes of any plan.

        It counts every buffer twice, since a recomputed run allocates while the old copy exists, and adds the largest
        scratch and callees of an op.
        """
        transient = int(self.scratch.max(initial=0))
        for op, names in enumerate(self.callees):
            if names:
                inner = max(self.subgraphs[name].most_bytes for name in names)
                transient = max(transient, int(self.scratch[op]) + inner)
        return 2 * int(self.sizes.sum()) + transient

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 in hex of all data that a plan depends on. Its own name, notes and sources are excluded."""
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
        """Return the bytes of persistent buffers by memory space name."""
        return self.bytes_by_space(self.persistent)

    def bytes_by_space(self, chosen: Mask) -> dict[str, int]:
        """Return the bytes of the buffers in a mask by memory space name."""
        return {
            space.name: int(self.sizes[chosen & (self.buffer_spaces == position)].sum())
            for position, space in enumerate(self.spaces)
        }
