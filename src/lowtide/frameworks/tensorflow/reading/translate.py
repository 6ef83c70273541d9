"""Translate nodes: one op per computing node, one buffer per output."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lowtide.core.errors import MalformedInputError, UnsupportedError
from lowtide.engine.graph import GraphBuilder, Lifetime
from lowtide.frameworks.tensorflow.graphs.attributes import Shape
from lowtide.frameworks.tensorflow.graphs.graph_def import FunctionDef, GraphDef
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators import (
    ALL_PORTS,
    CONTROL_FLOW_V1,
    PLACEHOLDERS,
    RESOURCE,
    SOURCES,
    VARIABLES,
    VIEWS,
    spec_of,
)
from lowtide.frameworks.tensorflow.reading.body import (
    NodeBody,
    Port,
    body_of_function,
    first_ready_order,
    fused_pairs,
    v1_reason,
    with_waits,
)
from lowtide.frameworks.tensorflow.reading.calls import (
    NodeCall,
    call_of,
    completed_shapes,
    function_shapes,
    invariant_arguments,
)
from lowtide.frameworks.tensorflow.reading.devices import Devices
from lowtide.frameworks.tensorflow.reading.effects import effects_of, holds_tensors, may_write_over
from lowtide.frameworks.tensorflow.reading.translation import (
    Asked,
    Called,
    CalledFunction,
    Known,
    TensorflowTranslation,
)
from lowtide.frameworks.tensorflow.shapes import bytes_by_output, is_full, output_types, variable_bytes

_DEEPEST_CALL = 60
_MOST_ROUNDS = 4
"""Rounds with shapes that callees determine."""


def translate(
    name: str,
    graph: GraphDef,
    body: NodeBody,
    known: Known,
    asked: Asked,
    devices: Devices,
    called: Called | None = None,
) -> TensorflowTranslation:
    """Return the needed part of a body as a graph.

    Raises UnsupportedError for v1 control flow, MalformedInputError for missing inputs.
    """
    needed = body.ancestors([*(node for node, _ in asked.results), *asked.targets], asked.fed)
    pairs = fused_pairs(body, needed)
    body = with_waits(body, pairs)
    order = first_ready_order(body, needed, asked.fed)
    open_called = called or Called()

    def translated(known: Known) -> _NodeTranslator:
        made = _NodeTranslator(name, graph, body, known, asked, devices, open_called, pairs)
        for place in order:
            made.add(place)
        return made

    translator = translated(known)
    for _ in range(_MOST_ROUNDS):
        if not translator.found:
            break
        shapes = completed_shapes(body, {**known.shapes, **translator.found}, graph)
        found = {port: size for port, size in bytes_by_output(body.nodes, shapes).items() if size is not None}
        known = Known(shapes, {**known.sizes, **found})
        translator = translated(known)
    return translator.finish()


@dataclass(slots=True)
class _NodeTranslator:
    name: str
    graph: GraphDef
    body: NodeBody
    known: Known
    asked: Asked
    devices: Devices
    called: Called
    pairs: dict[int, int]
    builder: GraphBuilder = field(init=False)
    paired: set[int] = field(init=False)
    kept: set[int] = field(init=False)
    """Nodes with fetched results, kept to the end."""
    buffers: dict[Port, int] = field(default_factory=dict[Port, int])
    ports: list[Port] = field(default_factory=list[Port])
    buffer_sizes: list[int] = field(default_factory=list[int])
    lifetimes: list[Lifetime] = field(default_factory=list[Lifetime])
    done: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    """Ops that control edges from each node wait for."""
    extra: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    """Ops that each view's readers wait for in addition."""
    nodes: list[int] = field(default_factory=list[int])
    read_ports: dict[str, int] = field(default_factory=dict[str, int])
    read_bytes: dict[int, int] = field(default_factory=dict[int, int])
    outer: list[Port] = field(default_factory=list[Port])
    found: dict[tuple[str, int], Shape] = field(default_factory=dict[tuple[str, int], Shape])
    """Shapes that only the called functions determine."""
    unknown: list[str] = field(default_factory=list[str])
    lists: list[str] = field(default_factory=list[str])
    notes: dict[str, None] = field(default_factory=dict[str, None])

    def __post_init__(self) -> None:
        self.builder = GraphBuilder(self.name)
        self.paired = {*self.pairs, *self.pairs.values()}
        self.kept = {self._root(port) for port in self.asked.results}
        for space in self.devices.spaces:
            self.builder.add_space(space.name, capacity_bytes=space.capacity_bytes)
        for place, node in enumerate(self.body.nodes):
            if node.op == "ReadVariableOp" and self.body.data[place]:
                self.read_bytes[self.body.data[place][0][0]] = self.known.sizes.get((node.name, 0)) or 0
        for place, port in (*(port for reads in self.body.data for port in reads), *self.asked.results):
            node = self.body.nodes[place]
            if spec_of(node.op) is None:
                self.read_ports[node.name] = max(port + 1, self.read_ports.get(node.name, 0))

    def _root(self, port: Port) -> int:
        place, number = port
        while self.body.nodes[place].op in VIEWS and self.body.data[place] and place not in self.asked.fed:
            shown = self.body.data[place]
            place, number = shown[min(number, len(shown) - 1) if self.body.nodes[place].op in ALL_PORTS else 0]
        return place

    def add(self, place: int) -> None:
        node = self.body.nodes[place]
        if node.op in CONTROL_FLOW_V1:
            raise UnsupportedError(f"{self.body.where}: {v1_reason(node)}")
        if place in self.asked.fed or node.op in SOURCES:
            self._add_source(place, node)
        elif node.op in VIEWS and self.body.data[place]:
            self._add_view(place, node)
        else:
            self._add_op(place, node)

    def _add_source(self, place: int, node: NodeDef) -> None:
        lifetime, is_captured = Lifetime.PERSISTENT, output_types(node)[:1] == [RESOURCE]
        if (place in self.asked.fed or node.op in PLACEHOLDERS) and not is_captured:
            lifetime = Lifetime.PERSISTENT if place in self.asked.counted else Lifetime.INPUT
        for port in range(max(1, len(output_types(node)))):
            size = variable_bytes(node) if node.op in VARIABLES else self.known.sizes.get((node.name, port))
            if is_captured or (size is None and node.op in VARIABLES):
                size = size or self.read_bytes.get(place, 0)
            self._define(place, port, size, lifetime)
            if lifetime == Lifetime.INPUT:
                self.outer.append((place, port))
        self.done[place] = () if place in self.asked.fed else self._waits(place)
        self.extra[place] = self.done[place]

    def _add_view(self, place: int, node: NodeDef) -> None:
        inputs = self.body.data[place]
        shown = inputs if node.op in ALL_PORTS else inputs[:1]
        for port, source in enumerate(shown):
            self.buffers[place, port] = self._buffer(source, node)
        extra = dict.fromkeys(self._waits(place))
        done = dict(extra)
        for source, _ in inputs:
            extra.update(dict.fromkeys(self.extra.get(source, ())))
            done.update(dict.fromkeys(self.done[source]))
        self.extra[place] = tuple(extra)
        self.done[place] = tuple(done)

    def _add_op(self, place: int, node: NodeDef) -> None:
        inputs = self.body.data[place]
        reads = [self._buffer(source, node) for source in inputs]
        call = call_of(node, self.graph, self.body.where)
        effects = effects_of(node, calls=bool(call.functions))
        mutated = [reads[number] for number in effects.mutated if number < len(reads)]
        forwarded = {output: reads[number] for number, output in effects.forwarded if number < len(reads)}
        callees = self._add_callees(node, call, inputs)
        written: list[int] = []
        for port in range(self._count(node, call)):
            if port in forwarded:
                self.buffers[place, port] = forwarded[port]
            else:
                size = self.known.sizes.get((node.name, port))
                size = call.output_bytes(node, port) if size is None else size
                written.append(self._define(place, port, size, Lifetime.INTERMEDIATE))
        if spec_of(node.op) is None and not call.functions:
            self.notes[
                f"op {node.op} of node {node.name!r} is unknown: it keeps its order, and its workspace is not modeled"
            ] = None
        after = dict.fromkeys(self._waits(place))
        for source, _ in inputs:
            after.update(dict.fromkeys(self.extra.get(source, ())))
        number = self.builder.add_op(
            node.name,
            call.kind,
            reads=list(dict.fromkeys(buffer for buffer in reads if buffer not in mutated)),
            writes=written,
            mutates=list(dict.fromkeys(mutated)),
            after=sorted(after),
            in_place=self._pairs(node, reads, written),
            pure=not (effects.is_fixed or mutated or place in self.paired or place in self.kept),
            ordered=effects.is_fixed,
            callees=callees,
            device=self.devices.name_of(node),
        )
        self.nodes.append(place)
        self.done[place] = (number,)

    def finish(self) -> TensorflowTranslation:
        for port in self.asked.results:
            buffer = self.buffers.get(port)
            if buffer is None:
                if self.body.nodes[port[0]].op != "NoOp" and port[1]:
                    raise MalformedInputError(
                        f"{self.body.where}: node {self.body.nodes[port[0]].name!r} has no output {port[1]}"
                    )
            elif self.lifetimes[buffer] == Lifetime.INTERMEDIATE:
                self.builder.set_lifetime(buffer, Lifetime.OUTPUT)
        if self.unknown:
            self.builder.note(
                f"{len(self.unknown)} outputs with unknown shapes count as 0 bytes, {self.unknown[0]!r} first"
            )
        if self.lists:
            self.builder.note(
                f"{len(self.lists)} outputs count as 0 bytes, being lists or arrays of tensors, {self.lists[0]!r} first"
            )
        for sentence in self.notes:
            self.builder.note(sentence)
        return TensorflowTranslation(
            graph=self.builder.build(),
            body=self.body,
            nodes=tuple(self.nodes),
            ports=tuple(self.ports),
            results=tuple(self.asked.results),
            fed=self.outer,
            called=self.called.functions,
            pairs=self.pairs,
        )

    def _add_callees(self, node: NodeDef, call: NodeCall, inputs: Sequence[Port]) -> list[str]:
        arguments = inputs[call.n_skipped :]
        shapes = tuple(self.known.shapes.get((self.body.nodes[place].name, port)) for place, port in arguments)
        sizes = tuple(self.buffer_sizes[self.buffers[port]] for port in arguments)
        names: list[str] = []
        for function in call.functions:
            loops = call.kind == "while" and len(function.outputs) == len(function.inputs)
            key = (function.name, loops, sizes, shapes)
            if key not in self.called.names:
                if function.name in self.called.open or len(self.called.open) >= _DEEPEST_CALL:
                    raise UnsupportedError(
                        f"{self.body.where}: function {function.name!r} of node {node.name!r} calls itself, or nests "
                        f"more than {_DEEPEST_CALL} calls; write it as a loop"
                    )
                self.called.open.append(function.name)
                self.called.names[key] = self._callee(function, sizes, shapes, loops=loops)
                self.called.open.pop()
            name = self.called.names[key]
            found = self.called.functions[name]
            graph = found.translation.graph
            if loops or call.kind != "while":
                self._find(node, found.results)
            self.builder.add_subgraph(name, graph)
            self.notes.update(dict.fromkeys(graph.unmodeled))
            names.append(name)
        return names

    def _find(self, node: NodeDef, results: Sequence[Shape]) -> None:
        for port, shape in enumerate(results):
            if is_full(shape) and not is_full(self.known.shapes.get((node.name, port))):
                self.found.setdefault((node.name, port), shape)

    def _callee(self, function: FunctionDef, sizes: Sequence[int], shapes: Sequence[Shape], *, loops: bool) -> str:
        """The caller counts the arguments, except those that a loop changes."""
        body = body_of_function(function, f"{self.body.where}, function {function.name!r}")
        shapes_inside = function_shapes(body, shapes, self.graph)
        known = bytes_by_output(body.nodes, shapes_inside)
        known.update({(argument.name, 0): size for argument, size in zip(function.inputs, sizes, strict=False)})
        arguments = range(body.n_arguments)
        asked = Asked(
            fed=arguments,
            counted=invariant_arguments(function, body) if loops else arguments,
            results=[body.port(text) for each in function.outputs if (text := function.results.get(each.name))],
            targets=[body.port(text)[0] for text in function.control_results],
        )
        same = sum(other[0] == function.name for other in self.called.names)
        name = f"{function.name}#{same + 1}" if same else function.name
        translation = translate(name, self.graph, body, Known(shapes_inside, known), asked, self.devices, self.called)
        results = [shapes_inside.get((body.nodes[place].name, port)) for place, port in asked.results]
        self.called.functions[name] = CalledFunction(function.name, translation, results)
        return name

    def _define(self, place: int, port: int, size: int | None, lifetime: Lifetime) -> int:
        name = f"{self.body.nodes[place].name}:{port}"
        if not size and holds_tensors(self.body.nodes[place], port):
            self.lists.append(name)
        elif size is None:
            self.unknown.append(name)
        space = self.devices.space_of(self.body.nodes[place])
        buffer = self.builder.add_buffer(name, size or 0, lifetime, space=space)
        self.buffers[place, port] = buffer
        self.ports.append((place, port))
        self.buffer_sizes.append(size or 0)
        self.lifetimes.append(lifetime)
        return buffer

    def _buffer(self, source: Port, reader: NodeDef) -> int:
        if source not in self.buffers:
            node = self.body.nodes[source[0]]
            raise MalformedInputError(
                f"{self.body.where}: node {reader.name!r} reads output {source[1]} of {node.name!r} ({node.op}), which "
                "does not exist; the graph is damaged"
            )
        return self.buffers[source]

    def _waits(self, place: int) -> tuple[int, ...]:
        return tuple(dict.fromkeys(op for source in self.body.controls[place] for op in self.done[source]))

    def _count(self, node: NodeDef, call: NodeCall) -> int:
        if call.n_outputs is not None:
            return call.n_outputs
        return len(output_types(node)) if spec_of(node.op) is not None else self.read_ports.get(node.name, 0)

    def _pairs(self, node: NodeDef, reads: Sequence[int], written: Sequence[int]) -> list[tuple[int, int]]:
        return [
            (reads[number], written[0])
            for number in may_write_over(node, len(reads) if written else 0)
            if self.lifetimes[reads[number]] == Lifetime.INTERMEDIATE
            and reads.count(reads[number]) == 1
            and 0 < self.buffer_sizes[reads[number]] == self.buffer_sizes[written[0]]
        ]
