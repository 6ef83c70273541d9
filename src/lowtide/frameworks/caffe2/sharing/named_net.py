"""Nets over named blobs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, compress

from lowtide.core.errors import GraphError, UsageError
from lowtide.core.index_spaces import OpId, Place, SpaceId
from lowtide.engine.graph import Graph, Lifetime

_LARGEST_SIZE = 2**62


def is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and 0 <= size < _LARGEST_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedOp:
    """One op over blobs; a blob among both inputs and outputs is used in place."""

    kind: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    name: str = ""
    device: str | None = None
    is_gradient: bool = False
    after: tuple[OpId, ...] = ()
    step_nets: tuple["NamedNet", ...] = ()
    """Run in each step of a recurrent op; they see all outer blobs."""
    renames: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class NamedNet:
    """Ops in a valid order over named blobs.

    External blobs belong to the caller, so they never share. `sizes` are in bytes. A blob is on its device in
    `blob_devices`, else on that of its first writer or reader. Raises GraphError for an `after` that names no
    earlier op, and for an impossible size.
    """

    ops: tuple[NamedOp, ...]
    external_inputs: tuple[str, ...] = ()
    external_outputs: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    blob_devices: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        for position, op in enumerate(self.ops):
            if any(not 0 <= other < position for other in op.after):
                raise GraphError(
                    f"op {position} ({op.kind}): 'after' must name earlier ops by position, got {op.after}"
                )
        for blob, size in self.sizes.items():
            if not is_size(size):
                raise GraphError(f"blob {blob!r}: size {size!r} is out of range; give bytes from 0 to 2**62 - 1")

    @classmethod
    def from_graph(cls, graph: Graph) -> "NamedNet":
        """Return a graph as a net over its buffers' names, without callees.

        Mutated buffers are inputs and outputs. Persistent buffers and inputs are external inputs.
        """
        names, spaces = graph.buffer_names, [space.name for space in graph.spaces]
        ops: list[NamedOp] = []
        last_ordered: tuple[OpId, ...] = ()
        for position, (reads, writes, mutates, after) in enumerate(
            zip(graph.reads, graph.writes, graph.mutates, graph.after, strict=True)
        ):
            ordered = bool(graph.ordered[position])
            ops.append(
                NamedOp(
                    kind=graph.op_kinds[position],
                    name=graph.op_names[position],
                    inputs=tuple(names[buffer] for buffer in (*reads, *mutates)),
                    outputs=tuple(dict.fromkeys(names[buffer] for buffer in (*writes, *mutates))),
                    device=graph.devices[position],
                    after=(*after, *last_ordered) if ordered else tuple(after),
                )
            )
            last_ordered = (position,) if ordered else last_ordered
        at_start: list[bool] = graph.exists_at_start.tolist()
        outputs: list[bool] = (graph.lifetimes == Lifetime.OUTPUT).tolist()
        homes: list[SpaceId] = graph.buffer_spaces.tolist()
        return cls(
            ops=tuple(ops),
            external_inputs=tuple(compress(names, at_start)),
            external_outputs=tuple(compress(names, outputs)),
            sizes=dict(zip(names, graph.sizes.tolist(), strict=True)),
            blob_devices={name: spaces[home] for name, home in zip(names, homes, strict=True)},
        )

    @cached_property
    def externals(self) -> frozenset[str]:
        return frozenset((*self.external_inputs, *self.external_outputs))

    @cached_property
    def blobs(self) -> tuple[str, ...]:
        """In order of first touch."""
        touches = zip(self.reads, self.writes, strict=True)
        return tuple(dict.fromkeys(blob for reads, writes in touches for blob in (*reads, *writes)))

    @cached_property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """Per op, with its step nets."""
        return tuple(
            self._with_outer(op.inputs, (name for net in op.step_nets for name in net.inner_reads)) for op in self.ops
        )

    @cached_property
    def writes(self) -> tuple[tuple[str, ...], ...]:
        """Per op, with its step nets."""
        return tuple(
            self._with_outer(op.outputs, (name for net in op.step_nets for name in net.inner_writes)) for op in self.ops
        )

    @cached_property
    def inner_reads(self) -> tuple[str, ...]:
        """Names that this net may read from an outer net."""
        inner = (name for op in self.ops for net in op.step_nets for name in net.inner_reads)
        return tuple(dict.fromkeys((*self.external_inputs, *(name for op in self.ops for name in op.inputs), *inner)))

    @cached_property
    def inner_writes(self) -> tuple[str, ...]:
        """Names that this net may write in an outer net."""
        inner = (name for op in self.ops for net in op.step_nets for name in net.inner_writes)
        return tuple(dict.fromkeys((*(name for op in self.ops for name in op.outputs), *inner)))

    @cached_property
    def devices(self) -> Mapping[str, str | None]:
        result: dict[str, str | None] = dict(self.blob_devices)
        for touches in (self.writes, self.reads):
            for op, blobs in zip(self.ops, touches, strict=True):
                for blob in blobs:
                    result.setdefault(blob, op.device)
        return result

    @cached_property
    def edges(self) -> tuple[tuple[OpId, OpId], ...]:
        readers: defaultdict[str, list[OpId]] = defaultdict(list)
        writers: defaultdict[str, list[OpId]] = defaultdict(list)
        edges: set[tuple[OpId, OpId]] = set()
        for position, (op, reads, writes) in enumerate(zip(self.ops, self.reads, self.writes, strict=True)):
            before = [writers[blob] for blob in (*reads, *writes)] + [readers[blob] for blob in writes]
            edges.update((other, position) for others in (*before, op.after) for other in others)
            for blob in reads:
                readers[blob].append(position)
            for blob in writes:
                writers[blob].append(position)
        return tuple(sorted(edges))

    def size_of(self, blob: str) -> int:
        return self.sizes.get(blob, 1)

    def reordered(self, order: Sequence[OpId]) -> "NamedNet":
        """Return the net in the given order, unchecked."""
        if list(order) == list(range(len(self.ops))):
            return self
        places = {op: place for place, op in enumerate(order)}
        ops = (
            replace(op, after=tuple(places[other] for other in op.after)) if op.after else op
            for op in map(self.ops.__getitem__, order)
        )
        return replace(self, ops=tuple(ops))

    @cached_property
    def _own_names(self) -> frozenset[str]:
        return self.externals.union(*(set(op.inputs) | set(op.outputs) for op in self.ops))

    def _with_outer(self, own: Iterable[str], inner: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(chain(own, (name for name in inner if name in self._own_names))))


@dataclass(frozen=True, slots=True)
class BlobRange:
    """The live range of a blob, both ends included; raises UsageError for an impossible size."""

    name: str
    defined: Place | None
    """None if it exists at the start."""
    used: Place | None
    """None if it lives to the end."""
    size: int | None = None
    """In bytes. None counts as 1."""

    def __post_init__(self) -> None:
        if self.size is not None and not is_size(self.size):
            raise UsageError(f"blob {self.name!r}: size {self.size!r} is out of range; give bytes from 0 to 2**62 - 1")

    @property
    def begins(self) -> Place:
        return -1 if self.defined is None else self.defined


def blob_ranges(net: NamedNet) -> list[BlobRange]:
    """Return the live range of every blob that an op touches, in order of first touch. O(n + e).

    Blobs read before they are written live from the start, those written after their last read to the end. Source:
    Caffe2 memonger, compute_ranges, which ignores both.
    """
    defined: dict[str, Place | None] = {}
    used: dict[str, Place | None] = {}
    for position, (reads, writes) in enumerate(zip(net.reads, net.writes, strict=True)):
        for blob in reads:
            defined.setdefault(blob, None)
            used[blob] = position
        for blob in writes:
            defined.setdefault(blob, position)
            if blob not in reads:
                used[blob] = None
    return [BlobRange(blob, defined[blob], used[blob], net.sizes.get(blob)) for blob in net.blobs]
