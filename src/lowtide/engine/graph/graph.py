"""The graph: an immutable program over buffers."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import cached_property
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, SpaceId
from lowtide.engine.graph.op import OpColumns
from lowtide.engine.graph.rows import Ids
from lowtide.engine.graph.structure import Structure, derive_structure

Mask = NDArray[np.bool_]
STATE_TO_DEVICE = "lowtide.state_to_device"
"""Copy a buffer to a new one in another memory space."""
STATE_TO_HOST = "lowtide.state_to_host"
"""Copy a buffer over another one in another memory space."""
OPERAND_TO_HOST = "lowtide.operand_to_host"
"""Copy an operand of an update on the host to a new buffer there."""
PARAMETER_TO_DEVICE = "lowtide.parameter_to_device"
"""Copy an updated parameter from the host over the one on the device."""
PARAMETER_FROM_HOST = "lowtide.parameter_from_host"
"""Copy a parameter from the host to a new buffer; a plan may repeat it."""
GRADIENT_FROM_HOST = "lowtide.gradient_from_host"
"""Copy a gradient, which waited on the host, to a new buffer."""
UPDATE_ON_HOST = "lowtide.update_on_host"
"""Update a parameter on the host; small operands may be elsewhere."""
COPYING_KINDS = frozenset(
    {
        *(STATE_TO_DEVICE, STATE_TO_HOST, OPERAND_TO_HOST),
        *(PARAMETER_TO_DEVICE, PARAMETER_FROM_HOST, GRADIENT_FROM_HOST),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A memory space: device memory, an SRAM bank."""

    name: str
    capacity_bytes: int | None = None
    """None is unlimited."""
    alignment: int = 1
    """Every address is a multiple of this many bytes."""
    bandwidth_bytes_per_s: Mapping[str, float] = field(default_factory=dict[str, float])
    """Speed of copies, by name of the other space."""


class Lifetime(IntEnum):
    """The lifetime class of a buffer, with the numbers of native kernels."""

    PERSISTENT = 0
    """Exists throughout and is not in the peak: weights, optimizer state."""
    INPUT = 1
    """Exists from start to end."""
    DONATED = 2
    """Exists from the start, freed after its last use."""
    INTERMEDIATE = 3
    """Allocated by its first writer, freed after its last use."""
    OUTPUT = 4
    """Allocated by its first writer, exists to the end."""

    @property
    def persistent(self) -> bool:
        """Whether it is persistent."""
        return self is Lifetime.PERSISTENT

    @property
    def exists_at_start(self) -> bool:
        """Whether it exists before the first op."""
        return self <= Lifetime.DONATED

    @property
    def freeable(self) -> bool:
        """Whether a plan may free it."""
        return self in (Lifetime.DONATED, Lifetime.INTERMEDIATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A buffer as an object."""

    id: BufferId
    name: str
    size_bytes: int
    lifetime: Lifetime
    space: SpaceId


@dataclass(frozen=True, eq=False, kw_only=True)
class Graph(OpColumns):
    """A program: ops in a valid order, their buffers, and memory spaces.

    Ids are positions. Arrays are read-only, with one entry per buffer or op; `Rows` have one list per op.
    """

    name: str
    spaces: tuple[Space, ...]
    buffer_names: Sequence[str]
    sizes: NDArray[np.int64]
    lifetimes: NDArray[np.uint8]
    buffer_spaces: NDArray[np.int16]
    subgraphs: Mapping[str, "Graph"] = field(default_factory=dict[str, "Graph"])
    """All callees, nested ones included."""
    unmodeled: tuple[str, ...] = ()
    """Facts that the reader could not model."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {self.n_ops} ops, {self.n_buffers} buffers)"

    def _repr_html_(self) -> str:
        drawing = import_module("lowtide.engine.analysis.memory_picture")  # the analysis of graphs is a floor above
        return drawing.memory_picture(self).html([("ops", str(self.n_ops)), ("buffers", str(self.n_buffers))])

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
        """Mask of persistent buffers."""
        return self._in_classes(lambda lifetime: lifetime.persistent)

    @cached_property
    def exists_at_start(self) -> Mask:
        """Mask of buffers existing before the first op."""
        return self._in_classes(lambda lifetime: lifetime.exists_at_start)

    @cached_property
    def exists_at_end(self) -> Mask:
        """Mask of buffers existing after the last op."""
        return self._in_classes(lambda lifetime: not lifetime.freeable)

    @cached_property
    def counted_at_start(self) -> Mask:
        """Mask of buffers in the peak before the first op."""
        return self._in_classes(lambda lifetime: lifetime.exists_at_start and not lifetime.persistent)

    @cached_property
    def counted_at_end(self) -> Mask:
        """Mask of buffers in the peak after the last op."""
        return self._in_classes(lambda lifetime: not lifetime.freeable and not lifetime.persistent)

    @cached_property
    def freeable(self) -> Mask:
        """Mask of buffers that a plan may free."""
        return self._in_classes(lambda lifetime: lifetime.freeable)

    def _in_classes(self, chosen: Callable[[Lifetime], bool]) -> Mask:
        mask = np.array([chosen(lifetime) for lifetime in Lifetime])[self.lifetimes]
        mask.setflags(write=False)
        return mask

    @cached_property
    def called(self) -> tuple[str, ...]:
        """Names of called graphs, by first call."""
        return tuple(dict.fromkeys(name for names in self.callees for name in names))

    @cached_property
    def structure(self) -> Structure:
        """Dependences, and buffers' users."""
        return derive_structure(self.lifetimes, self.reads, self.writes, self.mutates, self.after, self.ordered)

    @cached_property
    def copying(self) -> Mask:
        """Mask of ops that only copy a buffer to another memory space."""
        mask = np.zeros(self.n_ops, np.bool_)
        for op in (op for op, kind in enumerate(self.op_kinds) if kind in COPYING_KINDS):
            written = {*self.writes[op].tolist(), *self.mutates[op].tolist()}
            ends = [*({*self.reads[op].tolist()} - written), *written]
            mask[op] = len(ends) == 2 and len(written) == 1 and len(np.unique(self.buffer_spaces[ends])) == 2
        mask.setflags(write=False)
        return mask

    @cached_property
    def copies_parameters(self) -> Mask:
        """Mask of copies of parameters from the host, which a plan may repeat."""
        kinds = (kind == PARAMETER_FROM_HOST for kind in self.op_kinds)
        return self.copying & np.fromiter(kinds, np.bool_, self.n_ops)

    @cached_property
    def updates_on_host(self) -> Mask:
        """Mask of ops that run on the host, on their own stream."""
        mask = np.fromiter((kind == UPDATE_ON_HOST for kind in self.op_kinds), np.bool_, self.n_ops)
        mask.setflags(write=False)
        return mask

    @cached_property
    def off_device(self) -> Mask:
        """Mask of ops that take no device time: copies between memory spaces, and updates on the host."""
        return self.copying | self.updates_on_host

    @cached_property
    def scratch_spaces(self) -> Ids:
        """Memory space of every op's scratch: named like its device, or the first space."""
        by_name = {space.name: position for position, space in enumerate(self.spaces)}
        return np.fromiter(
            (0 if device is None else by_name.get(device, 0) for device in self.devices), np.int32, self.n_ops
        )

    @cached_property
    def call_depth(self) -> int:
        """Depth of nested calls."""
        return 1 + max((self.subgraphs[name].call_depth for name in self.called), default=0)

    @cached_property
    def most_bytes(self) -> int:
        """A loose upper bound on any plan's bytes."""
        transient = int(self.scratch.max(initial=0))
        for op, names in enumerate(self.callees):
            if names:
                inner = max(self.subgraphs[name].most_bytes for name in names)
                transient = max(transient, int(self.scratch[op]) + inner)
        return 2 * int(self.sizes.sum()) + transient

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that plans depend on, as hex."""
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
        if self.repeatable.any():
            digest.update(b"repeatable" + self.repeatable.tobytes())
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
        """Return persistent bytes by memory space name."""
        return self.bytes_by_space(self.persistent)

    def bytes_by_space(self, chosen: Mask) -> dict[str, int]:
        """Return the bytes of masked buffers by memory space name."""
        return {
            space.name: int(self.sizes[chosen & (self.buffer_spaces == position)].sum())
            for position, space in enumerate(self.spaces)
        }
