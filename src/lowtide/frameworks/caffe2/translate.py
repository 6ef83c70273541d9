"""Translate a NetDef into a graph with one buffer per write of a blob."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.errors import MalformedInputError
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.frameworks.caffe2.effects import is_impure, is_unknown, optional_in_place_pairs
from lowtide.frameworks.caffe2.known import KnownBlobs, require_known
from lowtide.frameworks.caffe2.nets.arguments import GRADIENT, nets_run_by, step_nets
from lowtide.frameworks.caffe2.nets.named import SIMPLE_TYPES, device_of, named_net, rows_of_states
from lowtide.frameworks.caffe2.nets.recurrent import Ties, step_ties_of
from lowtide.frameworks.caffe2.shapes.infer import OpTypes, infer_types, last_types
from lowtide.frameworks.caffe2.shapes.tensor_type import TensorType
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet
from lowtide.frameworks.caffe2.sharing.rename import ALIAS, FREE


@dataclass(frozen=True, slots=True)
class OpBuffers:
    position: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    controls: Mapping[str, int]
    inner: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NetTranslation:
    graph: Graph
    ops: tuple[OpBuffers, ...]
    blobs: tuple[str, ...]
    fixed: frozenset[int]
    """Buffers that the caller reads or writes."""


def translate(
    net: Any, known: KnownBlobs, parameters: Collection[str], where: str, *, borrows: bool = False
) -> NetTranslation:
    """Return a net as a graph.

    An op that overwrites its input mutates the buffer. Another write of a blob gets a new buffer, so that no false
    dependence limits the plan. A step net `borrows` its parameters, and its outer blobs may have unknown sizes. Raises
    UnsupportedError for other outer blobs of unknown size, MalformedInputError for a net that reads a freed blob,
    GraphError for impossible sizes.
    """
    named = named_net(net)
    if not borrows:
        require_known(_outer_blobs(named), known, where)
    translator = _Translator(net, named, known, parameters, where)
    translator.add_outer_blobs(parameters if borrows else ())
    for position in range(len(net.op)):
        translator.add_op(position)
    return translator.finish()


def _outer_blobs(named: NamedNet, written: Iterable[str] = ()) -> dict[str, None]:
    seen = set(written)
    outer: dict[str, None] = {}
    for reads, writes in zip(named.reads, named.writes, strict=True):
        outer.update(dict.fromkeys(blob for blob in reads if blob not in seen))
        seen.update(writes)
    return outer


def _step_types(ties: Ties, op: Any, outer: Mapping[str, TensorType]) -> dict[str, TensorType]:
    states = dict(ties.states)
    result = dict(outer)
    batch = next((kind.shape[1] for name in op.input if (kind := outer.get(name)) and len(kind.shape) > 2), 1)
    for link in ties.links:
        kind = outer.get(states.get(link.outer, link.outer))
        if kind is not None and kind.shape:
            row = (batch, kind.shape[-1]) if link.outer in states else kind.shape[1:]
            result[link.inner] = kind.with_shape(link.window, *row)
    result[ties.timestep] = TensorType((1,), "int32")
    return result


class _Translator:
    def __init__(self, net: Any, named: NamedNet, known: KnownBlobs, parameters: Collection[str], where: str) -> None:
        self._net = net
        self._named = named
        self._known = known
        self._parameters = parameters
        self._where = where
        self._builder = GraphBuilder(net.name or "net")
        self._types: Sequence[OpTypes] = infer_types(net, known.types)
        self._current: dict[str, int] = {}
        self._freed: dict[str, int] = {}
        self._blobs: list[str] = []
        self._sizes: list[int] = []
        self._lifetimes: list[Lifetime] = []
        self._names: set[str] = set()
        self._writer: dict[str, int] = {}  # the last op that wrote or aliased each blob
        self._aliased_buffers: set[int] = set()
        self._state_rows: set[int] = set()
        self._ops: list[OpBuffers] = []
        self._notes: dict[str, None] = {}

    def add_outer_blobs(self, borrowed: Iterable[str]) -> None:
        outer = dict.fromkeys((*self._net.external_input, *borrowed)) | _outer_blobs(self._named, borrowed)
        touched = {*self._named.blobs, *self._net.external_output}
        for blob in outer:
            if blob in touched or blob in self._known.types or blob in self._known.sizes:
                lifetime = Lifetime.PERSISTENT if blob in self._parameters else Lifetime.INPUT
                self._define(blob, self._size(blob, self._known.types.get(blob), "the net's inputs"), lifetime)

    def add_op(self, position: int) -> None:
        op = self._net.op[position]
        if op.type == FREE:
            self._freed.update(dict.fromkeys(op.output, position))
            return
        reads = {blob: self._read(blob, position) for blob in self._named.reads[position]}
        inputs = tuple(reads[blob] for blob in op.input)
        types = dict(zip(op.output, self._types[position], strict=True))
        name = self._unique(op.name or f"{op.type}:{next(iter(op.output), position)}")
        number = len(self._ops)
        waits = sorted({self._writer[blob] for blob in self._needs_edge(op)})
        callees = self._add_steps(op, name, position)
        controls = {blob: self._current[blob] for blob in op.control_input if blob in self._current}
        writes: list[int] = []
        mutates: list[int] = []
        for blob in self._named.writes[position]:
            size = self._size(blob, types.get(blob), f"{op.type} {name!r}")
            old = self._current.get(blob)
            in_place = blob in reads and old is not None and (self._sizes[old] == size or types.get(blob) is None)
            if old is not None and (in_place or (self._is_visible(old) and self._sizes[old] == size)):
                mutates.append(old)
            elif op.type == ALIAS:
                self._current[blob] = inputs[0]
                self._aliased_buffers.add(inputs[0])
            else:
                writes.append(self._define(blob, size, Lifetime.INTERMEDIATE))
            self._freed.pop(blob, None)
            self._writer[blob] = number
        outputs = tuple(self._current[blob] for blob in op.output)
        self._state_rows.update(self._current[blob] for blob in rows_of_states(op))
        if is_unknown(op):
            self._note(
                f"op {name!r} of kind {op.type} is unknown: it keeps its order, and its workspace is not modeled"
            )
        impure = is_impure(op)
        self._builder.add_op(
            name,
            op.type,
            reads=list(dict.fromkeys(reads.values())),
            writes=writes,
            mutates=list(dict.fromkeys(mutates)),
            after=waits,
            in_place=self._pairs(op, inputs, outputs, writes),
            pure=not impure,
            ordered=impure,
            callees=callees,
            device=device_of(op, self._net),
        )
        inner = {blob: self._current[blob] for blob in (*reads, *self._named.writes[position])}
        self._ops.append(OpBuffers(position, inputs, outputs, controls, inner if callees else {}))

    def finish(self) -> NetTranslation:
        for blob in self._net.external_output:
            buffer = self._current.get(blob)
            if buffer is not None and self._lifetimes[buffer] == Lifetime.INTERMEDIATE:
                self._builder.set_lifetime(buffer, Lifetime.OUTPUT)
                self._lifetimes[buffer] = Lifetime.OUTPUT
        if self._net.type not in SIMPLE_TYPES:
            self._note(
                f"a net of type {self._net.type!r} may run several ops at once; all figures assume one at a time"
            )
        for note in self._notes:
            self._builder.note(note)
        fixed = {buffer for buffer, lifetime in enumerate(self._lifetimes) if lifetime != Lifetime.INTERMEDIATE}
        return NetTranslation(self._builder.build(), tuple(self._ops), tuple(self._blobs), frozenset(fixed))

    def _define(self, blob: str, size: int, lifetime: Lifetime) -> int:
        buffer = self._builder.add_buffer(self._unique(blob), size, lifetime)
        self._current[blob] = buffer
        self._blobs.append(blob)
        self._sizes.append(size)
        self._lifetimes.append(lifetime)
        return buffer

    def _read(self, blob: str, position: int) -> int:
        if blob in self._freed:
            raise MalformedInputError(
                f"{self._where}: op {position} ({self._net.op[position].type}) reads {blob!r}, which op "
                f"{self._freed[blob]} freed; read it before"
            )
        return self._current[blob]

    def _is_visible(self, buffer: int) -> bool:
        return self._lifetimes[buffer] in (Lifetime.INPUT, Lifetime.PERSISTENT) or buffer in self._aliased_buffers

    def _needs_edge(self, op: Any) -> set[str]:
        aliases = (blob for blob in op.input if self._blobs[self._current[blob]] != blob)
        return self._writer.keys() & {*aliases, *op.control_input}

    def _pairs(
        self, op: Any, inputs: Sequence[int], outputs: Sequence[int], writes: Collection[int]
    ) -> list[tuple[int, int]]:
        return [
            (inputs[source], outputs[target])
            for source, target in optional_in_place_pairs(op)
            if source < len(inputs)
            and target < len(outputs)
            and outputs[target] in writes
            and self._lifetimes[inputs[source]] == Lifetime.INTERMEDIATE
            and inputs[source] not in self._state_rows
            and inputs.count(inputs[source]) == 1
            and 0 < self._sizes[inputs[source]] == self._sizes[outputs[target]]
            and op.output[target] not in self._net.external_output
        ]

    def _add_steps(self, op: Any, name: str, position: int) -> list[str]:
        nets = list(step_nets(op))
        if not nets:
            return []
        callees: list[str] = []
        ties = step_ties_of(op)
        types = _step_types(ties, op, self._types_before(position))
        for argument, inner in nets:
            if op.type == GRADIENT and argument.name == "step_net":
                types = types | last_types(inner, types)  # read by the backward step net
        for argument, inner in nets_run_by(op):
            known = KnownBlobs(types, {})
            callee = f"{name}/{argument.name}"
            borrowed = [*inner.external_input, *(link.inner for link in ties.links)]
            graph = translate(inner, known, borrowed, f"{self._where}, {callee}", borrows=True).graph
            self._builder.add_subgraph(callee, graph)
            callees.append(callee)
            self._notes.update(dict.fromkeys(graph.unmodeled))
            self._note(f"op {name!r} counts one step of {argument.name!r}; in training the blobs of all steps are kept")
        return callees

    def _types_before(self, position: int) -> Mapping[str, TensorType]:
        types = dict(self._known.types)
        for op, outputs in zip(self._net.op[:position], self._types, strict=False):
            types.update((name, kind) for name, kind in zip(op.output, outputs, strict=True) if kind is not None)
        return types

    def _note(self, sentence: str) -> None:
        self._notes[sentence] = None

    def _size(self, blob: str, kind: TensorType | None, origin: str) -> int:
        if kind is not None:
            return kind.size_bytes
        if blob in self._known.sizes:
            return self._known.sizes[blob]
        self._note(f"blob {blob!r} of {origin} counts as 0 bytes: its shape is unknown")
        return 0

    def _unique(self, name: str) -> str:
        wanted, number = name, 2
        while name in self._names:
            name = f"{wanted}#{number}"
            number += 1
        self._names.add(name)
        return name
