"""A net as runtimes see it that know storage by name only: ops, and the names of the blobs they read and write."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress

from lowtide.core.errors import GraphError
from lowtide.core.index_spaces import OpId, SpaceId
from lowtide.engine.graph import Graph, Lifetime

_LARGEST_SIZE = 2**62


def is_size(size: object) -> bool:
    """Whether something is a number of bytes that any storage could have."""
    return isinstance(size, int) and not isinstance(size, bool) and 0 <= size < _LARGEST_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedOp:
    """One op over blobs; a name among both inputs and outputs is used in place."""

    kind: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    name: str = ""
    device: str | None = None
    is_gradient: bool = False
    """Whether the op belongs to the backward pass."""
    after: tuple[OpId, ...] = ()
    """Positions of earlier ops that must run before, whatever they read and write."""
    step_nets: tuple["NamedNet", ...] = ()
    """Nets that a recurrent op runs once a time step; they see the blobs of the net around them by name."""
    renames: tuple[tuple[str, str], ...] = ()
    """Blobs of a recurrent op that were renamed, with their new names."""


@dataclass(frozen=True, kw_only=True)
class NamedNet:
    """Ops in a valid order over blobs known by name.

    External inputs and outputs hold what the caller put there or wants to find there, so nobody else may use their
    storage. `sizes` are in bytes, for the blobs whose size is known. A blob lies on the device that `blob_devices`
    names, else on that of its first writer, else on that of its first reader. Raises GraphError for an `after` that
    names no earlier op, and for an impossible size.
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
        """View a graph by the names of its buffers.

        Mutated buffers are both inputs and outputs. Persistent buffers and inputs are external inputs, outputs are
        external outputs. Callees have names of their own and stay out.
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
        """External inputs and outputs together."""
        return frozenset((*self.external_inputs, *self.external_outputs))

    @cached_property
    def blobs(self) -> tuple[str, ...]:
        """Every blob that an op touches, in the order of first touches, inputs before outputs."""
        touches = zip(self.reads, self.writes, strict=True)
        return tuple(dict.fromkeys(blob for reads, writes in touches for blob in (*reads, *writes)))

    @cached_property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """Per op, the blobs it reads, each once; what its step nets read from this net is among them."""
        return tuple(
            tuple(dict.fromkeys((*op.inputs, *self._seen(name for net in op.step_nets for name in net.inner_reads))))
            if op.step_nets
            else tuple(dict.fromkeys(op.inputs))
            for op in self.ops
        )

    @cached_property
    def writes(self) -> tuple[tuple[str, ...], ...]:
        """Per op, the blobs it writes, each once; what its step nets write in this net is among them."""
        return tuple(
            tuple(dict.fromkeys((*op.outputs, *self._seen(name for net in op.step_nets for name in net.inner_writes))))
            if op.step_nets
            else tuple(dict.fromkeys(op.outputs))
            for op in self.ops
        )

    @cached_property
    def inner_reads(self) -> tuple[str, ...]:
        """Every name that the net may read from a net around it."""
        inner = (name for op in self.ops for net in op.step_nets for name in net.inner_reads)
        return tuple(dict.fromkeys((*self.external_inputs, *(name for op in self.ops for name in op.inputs), *inner)))

    @cached_property
    def inner_writes(self) -> tuple[str, ...]:
        """Every name that the net may write in a net around it."""
        inner = (name for op in self.ops for net in op.step_nets for name in net.inner_writes)
        return tuple(dict.fromkeys((*(name for op in self.ops for name in op.outputs), *inner)))

    @cached_property
    def devices(self) -> Mapping[str, str | None]:
        """The device of every blob that an op touches; a writer says more than a reader."""
        result: dict[str, str | None] = dict(self.blob_devices)
        for touches in (self.writes, self.reads):
            for op, blobs in zip(self.ops, touches, strict=True):
                for blob in blobs:
                    result.setdefault(blob, op.device)
        return result

    @cached_property
    def edges(self) -> tuple[tuple[OpId, OpId], ...]:
        """Which later op must wait for which earlier one, sorted; see `interference_edges`."""
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
        """Return the size of a blob in bytes, 1 where it is unknown."""
        return self.sizes.get(blob, 1)

    def reordered(self, order: Sequence[OpId]) -> "NamedNet":
        """Return the net with its ops in the given order, which is trusted."""
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

    def _seen(self, names: Iterable[str]) -> list[str]:
        """Those names inside step nets that this net knows; the others are the step nets' own."""
        return [name for name in names if name in self._own_names]
