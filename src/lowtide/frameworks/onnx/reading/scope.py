"""Values of one graph: buffers and reads."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import FunctionProto, GraphProto, ModelProto, TensorProto, TypeProto, ValueInfoProto

from lowtide.core.errors import MalformedInputError
from lowtide.engine.graph import GraphBuilder, Lifetime
from lowtide.frameworks.onnx.operators.nodes import operator_of
from lowtide.frameworks.onnx.operators.tables import CONSTANTS, METADATA, VIEWS
from lowtide.frameworks.onnx.reading.translation import Value
from lowtide.frameworks.onnx.shapes.infer import value_types
from lowtide.frameworks.onnx.shapes.known_forms import Form, Forms
from lowtide.frameworks.onnx.shapes.tensors import dense_twin, tensor_bytes, type_bytes


@dataclass(slots=True)
class Context:
    """Shared by all graphs of a model."""

    model: ModelProto
    functions: Mapping[tuple[str, str], FunctionProto]
    short_weights: Mapping[str, TensorProto]
    """They may decide shapes."""
    opset: int
    """Of the default operator set."""
    notes: list[str] = field(default_factory=list[str])
    has_unknown_sizes: bool = False
    weights: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Inside subgraphs, by full name and bytes."""
    workspaces: Counter[str] = field(default_factory=Counter[str])
    """Unmodeled, counted by operator."""
    casts: Counter[str] = field(default_factory=Counter[str])
    """Nodes whose float16 values the runtime may cast, by operator."""


class Scope:
    """One graph's buffers by name. Unknown names are captured from `outer` as persistent buffers."""

    def __init__(
        self, context: Context, name: str, typed: GraphProto, known: Forms, outer: "Scope | None" = None
    ) -> None:
        self.context = context
        self.name = name
        self.builder = GraphBuilder(name or typed.name or "onnx")
        self.types: dict[str, TypeProto] = value_types(typed)
        self.known = known
        self.captured: list[str] = []
        self._outer = outer
        self.values: dict[str, Value] = {}
        self.sizes: list[int] = []
        """By buffer."""
        self.lifetimes: list[Lifetime] = []

    def add_weights(self, graph: GraphProto) -> None:
        for tensor in (*graph.initializer, *map(dense_twin, graph.sparse_initializer)):
            self.add_weight(tensor.name, tensor_bytes(tensor.data_type, tensor.dims, tensor.name))

    def add_inputs(self, inputs: Iterable[ValueInfoProto], origin: str, lifetime: Lifetime) -> None:
        for value in inputs:
            self.define(value.name, self.add_buffer(value.name, self.bytes_of(value.name, origin), lifetime))

    def add_weight(self, name: str, size: int) -> None:
        self.define(name, self.add_buffer(name, size, Lifetime.PERSISTENT))
        if self._outer is not None:
            self.context.weights.append((f"{self.name}/{name}", size))

    def add_copies_of_weights(self, graph: GraphProto) -> None:
        """Add the copies of weights among the outputs, which the runtime makes before the first node."""
        for name in dict.fromkeys(value.name for value in graph.output):
            buffer = self.value(name).buffer
            if self.lifetimes[buffer] == Lifetime.PERSISTENT:
                self.add_buffer(f"{name} as an output", self.sizes[buffer], Lifetime.INPUT)

    def add_buffer(self, name: str, size: int, lifetime: Lifetime) -> int:
        self.sizes.append(size)
        self.lifetimes.append(lifetime)
        return self.builder.add_buffer(name, size, lifetime)

    def define(self, name: str, buffer: int, keeps: tuple[int, ...] = ()) -> None:
        self.values[name] = Value(buffer, self.types.get(name, TypeProto()), keeps)

    def value(self, name: str) -> Value:
        if name not in self.values:
            if self._outer is None:
                raise MalformedInputError(f"nothing provides value {name!r}, which is read; the model is incomplete")
            value = self._outer.value(name)
            self.types[name] = value.type
            self.define(name, self.add_buffer(name, self._outer.sizes[value.buffer], Lifetime.PERSISTENT))
            self.captured.append(name)
        return self.values[name]

    def is_tensor(self, name: str) -> bool:
        value_type = self.types.get(name)
        return value_type is None or value_type.WhichOneof("value") in (None, "tensor_type")

    def bytes_of(self, name: str, origin: str) -> int:
        """Return bytes; without a determined size, add a note and return 0."""
        value_type = self.types.get(name, TypeProto())
        size = type_bytes(value_type, name)
        if size is None:
            kind = value_type.WhichOneof("value")
            reason = "its shape depends on the data" if kind in (None, "tensor_type") else f"it is a {kind[:-5]}"
            where = f" in {self.name}" if self.name else ""
            self.context.has_unknown_sizes = True
            self.context.notes.append(f"value {name!r} of {origin}{where} counts as 0 bytes: {reason}")
        return size or 0

    def forms(self) -> tuple[Form | None, ...]:
        found: dict[int, Form | None] = {}
        for name, value in self.values.items():
            found.setdefault(value.buffer, self.known.get(name))
        return tuple(found.get(buffer) for buffer in range(len(self.sizes)))

    def same_form(self, one: str, other: str) -> bool:
        return one in self.known and self.known[one] == self.known.get(other)

    def complete(self) -> None:
        """Add subgraphs' weights, and notes on all that is not modeled."""
        for name, size in self.context.weights:
            self.add_buffer(name, size, Lifetime.PERSISTENT)
        for note in dict.fromkeys(self.context.notes):
            self.builder.note(note)
        for operator, count in sorted(self.context.workspaces.items()):
            self.builder.note(
                f"the workspace of {operator} kernels ({count}) depends on the machine and is not modeled"
            )
        if self.context.casts:
            self.builder.note(
                "ONNX Runtime may compute float16 values as float32, in casts that only `lowtide optimize` plans: "
                + ", ".join(f"{operator} ({count})" for operator, count in sorted(self.context.casts.items()))
            )


class ReadCounts:
    """Reads per value; reads through a view count for its base, reads of shapes do not count."""

    def __init__(self, graph: GraphProto, inputs: Sequence[Sequence[str]]) -> None:
        outputs = {value.name for value in graph.output}
        consumed = outputs.union(*inputs)
        computed = {name for node in graph.node if operator_of(node) not in CONSTANTS for name in node.output}
        self._bases: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        late: set[str] = set()
        for node, names in zip(graph.node, inputs, strict=True):
            operator = operator_of(node)
            if operator in VIEWS and node.output[0] not in outputs:
                base, *operands = names
                self._bases[node.output[0]] = self._base(base)
                if base in late or computed.intersection(operands):
                    late.add(node.output[0])
                self._counts.update(operands)
                if node.output[0] not in consumed:
                    self._counts[self._base(base)] += 1
            elif operator not in METADATA or names[0] in late:
                self._counts.update(map(self._base, names))

    def __getitem__(self, name: str) -> int:
        return self._counts[self._base(name)]

    def _base(self, name: str) -> str:
        return self._bases.get(name, name)
