"""The values of one ONNX graph and the buffers they lie in."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import FunctionProto, GraphProto, ModelProto, TensorProto, TypeProto

from lowtide.core.errors import MalformedInputError
from lowtide.engine.graph import GraphBuilder, Lifetime
from lowtide.frameworks.onnx.reading.translation import Value
from lowtide.frameworks.onnx.shapes.infer import value_types
from lowtide.frameworks.onnx.shapes.known_forms import Form, Forms
from lowtide.frameworks.onnx.shapes.sizes import dense_twin, initializer_bytes, type_bytes


@dataclass(slots=True)
class Context:
    """What one reading of a model shares between all its graphs."""

    model: ModelProto
    functions: Mapping[tuple[str, str], FunctionProto]
    short_weights: Mapping[str, TensorProto]
    """Weights of the main graph whose data is at hand and may decide shapes."""
    opset: int
    """Version of the default operator set."""
    notes: list[str] = field(default_factory=list[str])
    weights: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Weights inside subgraphs, by full name and bytes: persistent like all others."""
    workspaces: Counter[str] = field(default_factory=Counter[str])
    """How many ops of an operator have a workspace that is not modeled."""


class Scope:
    """Names to buffers, in one graph; unknown names are captured from the graph around it as persistent buffers."""

    def __init__(
        self, context: Context, name: str, typed: GraphProto, known: Forms, outer: "Scope | None" = None
    ) -> None:
        """`typed` is the graph after shape inference, `name` its place in the model: "" for the main graph.

        `known` is what the runtime itself infers.
        """
        self.context = context
        self.name = name
        self.builder = GraphBuilder(name or typed.name or "onnx")
        self.types: dict[str, TypeProto] = value_types(typed)
        self.known = known
        self.captured: list[str] = []
        self._outer = outer
        self._values: dict[str, Value] = {}
        self._sizes: list[int] = []
        self._lifetimes: list[Lifetime] = []

    def add_weights(self, graph: GraphProto) -> None:
        """Add the graph's weights as persistent buffers, dense and sparse ones."""
        for tensor in graph.initializer:
            self._add_weight(tensor.name, initializer_bytes(tensor))
        for sparse in graph.sparse_initializer:
            self._add_weight(sparse.values.name, initializer_bytes(dense_twin(sparse)))

    def add_constant(self, name: str) -> None:
        """Add the result of a Constant node, which is a weight to the runtime."""
        self._add_weight(name, self.bytes_of(name, "a constant"))

    def _add_weight(self, name: str, size: int) -> None:
        self.define(name, self.add_buffer(name, size, Lifetime.PERSISTENT))
        if self._outer is not None:
            self.context.weights.append((f"{self.name}/{name}", size))

    def add_buffer(self, name: str, size: int, lifetime: Lifetime) -> int:
        """Add a buffer and return its id."""
        self._sizes.append(size)
        self._lifetimes.append(lifetime)
        return self.builder.add_buffer(name, size, lifetime)

    def define(self, name: str, buffer: int, keeps: tuple[int, ...] = ()) -> None:
        """Say which buffer a value lies in."""
        self._values[name] = Value(buffer, self.types.get(name, TypeProto()), keeps)

    def value(self, name: str) -> Value:
        """Return a value by name, capturing it from the graph around where this one does not have it."""
        if name not in self._values:
            if self._outer is None:
                raise MalformedInputError(f"value {name!r} is read but nothing provides it; the model is incomplete")
            value = self._outer.value(name)
            self.types[name] = value.type
            self.define(name, self.add_buffer(name, self._outer.size_of(value.buffer), Lifetime.PERSISTENT))
            self.captured.append(name)
        return self._values[name]

    def size_of(self, buffer: int) -> int:
        """Return the bytes of a buffer."""
        return self._sizes[buffer]

    def is_intermediate(self, buffer: int) -> bool:
        """Return whether a buffer lives from its writer to its last reader."""
        return self._lifetimes[buffer] == Lifetime.INTERMEDIATE

    def is_tensor(self, name: str) -> bool:
        """Return whether a value is a dense tensor, as far as its type is known."""
        value_type = self.types.get(name)
        return value_type is None or value_type.WhichOneof("value") in (None, "tensor_type")

    def bytes_of(self, name: str, origin: str) -> int:
        """Return the bytes of a value; where its type does not tell them, note that and return 0."""
        value_type = self.types.get(name, TypeProto())
        size = type_bytes(value_type, name)
        if size is None:
            kind = value_type.WhichOneof("value")
            reason = "its shape depends on the data" if kind in (None, "tensor_type") else f"it is a {kind[:-5]}"
            where = f" in {self.name}" if self.name else ""
            self.context.notes.append(f"value {name!r} of {origin}{where} counts as 0 bytes: {reason}")
        return size or 0

    @property
    def values(self) -> Mapping[str, Value]:
        """All values that were defined so far, by name."""
        return self._values

    def forms(self) -> tuple[Form | None, ...]:
        """Return by buffer what the runtime knows of the first value in it: its form, None where it knows none."""
        found: dict[int, Form | None] = {}
        for name, value in self._values.items():
            found.setdefault(value.buffer, self.known.get(name))
        return tuple(found.get(buffer) for buffer in range(len(self._sizes)))

    def same_form(self, one: str, other: str) -> bool:
        """Return whether the runtime knows that two values are of the same shape and of elements of the same size."""
        return one in self.known and self.known[one] == self.known.get(other)

    def add_inner_weights(self) -> None:
        """Add the weights of all subgraphs to the main graph: they are loaded with it."""
        for name, size in self.context.weights:
            self.add_buffer(name, size, Lifetime.PERSISTENT)

    def note_unmodeled(self) -> None:
        """Hand everything that could not be modeled to the main graph."""
        for note in dict.fromkeys(self.context.notes):
            self.builder.note(note)
        for operator, count in sorted(self.context.workspaces.items()):
            self.builder.note(
                f"the workspace of {operator} kernels ({count}) depends on the machine and is not modeled"
            )
