"""The graph: an immutable program over buffers, stored in flat arrays."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lowtide.graph.lifetime import Lifetime
from lowtide.graph.rows import Ids, Rows
from lowtide.graph.space import Space
from lowtide.graph.structure import Structure, derive_structure


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """One buffer, as people look at it."""

    id: int
    name: str
    size_bytes: int
    lifetime: Lifetime
    space: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One op, as people look at it."""

    id: int
    name: str
    kind: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    mutates: tuple[int, ...]
    after: tuple[int, ...]
    in_place: tuple[tuple[int, int], ...]
    scratch_bytes: int
    pure: bool
    ordered: bool
    cost: float
    flops: float | None
    callees: tuple[str, ...]
    device: str | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Graph:
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
    op_names: Sequence[str]
    op_kinds: Sequence[str]
    reads: Rows
    writes: Rows
    mutates: Rows
    after: Rows
    """Control predecessors: they order, but keep nothing alive."""
    in_place: Rows
    """Optional in-place pairs, flat: read buffer, written buffer, read buffer, written buffer, ..."""
    scratch: NDArray[np.int64]
    """Bytes every op needs while it runs, callees not counted."""
    pure: NDArray[np.bool_]
    """Whether the op may run twice."""
    ordered: NDArray[np.bool_]
    """Whether the op keeps its place among all ordered ops."""
    cost: NDArray[np.float64]
    """Run time of every op, in seconds where known, else 1.0."""
    flops: NDArray[np.float64]
    """Floating-point operations of every op, callees not counted; NaN where whoever made the graph did not count."""
    callees: Sequence[tuple[str, ...]]
    devices: Sequence[str | None]
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
        return 1 + max((self.subgraphs[name].call_depth for names in self.callees for name in names), default=0)

    @cached_property
    def most_bytes(self) -> int:
        """What no plan can exceed at once, by far: every buffer twice, since a rerun writes beside what is there, and
        the largest scratch and callee of any op."""
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
        for name in sorted({name for names in self.callees for name in names}):
            digest.update(f"{name} {self.subgraphs[name].fingerprint}\n".encode())
        return digest.hexdigest()

    def buffer(self, buffer: int) -> Buffer:
        """Return one buffer by id."""
        return Buffer(
            id=buffer,
            name=self.buffer_names[buffer],
            size_bytes=int(self.sizes[buffer]),
            lifetime=Lifetime(int(self.lifetimes[buffer])),
            space=int(self.buffer_spaces[buffer]),
        )

    def op(self, op: int) -> Op:
        """Return one op by id."""
        flat = self.in_place[op].tolist()
        return Op(
            id=op,
            name=self.op_names[op],
            kind=self.op_kinds[op],
            reads=tuple(self.reads[op].tolist()),
            writes=tuple(self.writes[op].tolist()),
            mutates=tuple(self.mutates[op].tolist()),
            after=tuple(self.after[op].tolist()),
            in_place=tuple(zip(flat[::2], flat[1::2], strict=True)),
            scratch_bytes=int(self.scratch[op]),
            pure=bool(self.pure[op]),
            ordered=bool(self.ordered[op]),
            cost=float(self.cost[op]),
            flops=None if np.isnan(self.flops[op]) else float(self.flops[op]),
            callees=self.callees[op],
            device=self.devices[op],
        )

    def persistent_bytes(self) -> dict[str, int]:
        """Bytes of persistent buffers, by memory space name."""
        return self.bytes_by_space(self.lifetimes == Lifetime.PERSISTENT)

    def bytes_by_space(self, chosen: NDArray[np.bool_]) -> dict[str, int]:
        """Bytes of the chosen buffers (a mask over all), by memory space name."""
        return {
            space.name: int(self.sizes[chosen & (self.buffer_spaces == position)].sum())
            for position, space in enumerate(self.spaces)
        }
