"""GraphDefs and their functions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lowtide.frameworks.tensorflow.graphs.messages import encode_field, field_head, named_fields, values
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.wire import Content, WireError

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class FunctionArgument:
    """One input or output of a function."""

    name: str
    type: int
    """Data type, 0 if a call determines it."""


@dataclass(frozen=True, slots=True)
class FunctionDef:
    """A function of a library. `piece` is its message."""

    piece: Content
    name: str
    inputs: tuple[FunctionArgument, ...]
    outputs: tuple[FunctionArgument, ...]
    is_stateful: bool
    nodes: Sequence[NodeDef]
    results: dict[str, str] = field(default_factory=dict[str, str])
    """The value of each output: "node:output:0", or an input."""
    control_results: tuple[str, ...] = ()
    """Nodes of the body that must run."""

    def with_nodes(self, nodes: Sequence[NodeDef]) -> "FunctionDef":
        """Return the function with other nodes."""
        fields = named_fields("FunctionDef", self.piece)
        kept = [self.piece[start:end] for name, start, _, end in fields if name != "node_def"]
        made = [encode_field("FunctionDef", "node_def", node.piece) for node in nodes]
        return read_function(b"".join((*kept, *made)))


def read_function(piece: Content) -> FunctionDef:
    """Raises WireError for broken content."""
    signature: Content = next(values("FunctionDef", piece, "signature"), b"")
    returned, controls = (
        [_text_entry(entry) for entry in values("FunctionDef", piece, name)] for name in ("ret", "control_ret")
    )
    return FunctionDef(
        piece=piece,
        name=next(values("OpDef", signature, "name"), ""),
        inputs=_arguments(signature, "input_arg"),
        outputs=_arguments(signature, "output_arg"),
        is_stateful=any(values("OpDef", signature, "is_stateful")),
        nodes=[NodeDef(node) for node in values("FunctionDef", piece, "node_def")],
        results=dict(returned),
        control_results=tuple(node for _, node in controls),
    )


def _arguments(signature: Content, name: str) -> tuple[FunctionArgument, ...]:
    return tuple(
        FunctionArgument(next(values("ArgDef", each, "name"), ""), next(values("ArgDef", each, "type"), 0))
        for each in values("OpDef", signature, name)
    )


def _text_entry(entry: Content) -> tuple[str, str]:
    return next(values("TextEntry", entry, "key"), ""), next(values("TextEntry", entry, "value"), "")


class GraphDef:
    """A TensorFlow graph. Graphs are equal if their bytes are."""

    def __init__(
        self,
        nodes: Sequence[NodeDef] = (),
        functions: Mapping[str, FunctionDef] | None = None,
        rest: Sequence[Content] = (),
        library_rest: Sequence[Content] = (),
    ) -> None:
        """`rest` and `library_rest` are other encoded fields."""
        self.nodes = nodes
        self.functions = dict(functions or {})
        self._rest = rest
        self._library_rest = library_rest
        self._source: Content | None = None

    @classmethod
    def parse(cls, content: Content) -> "GraphDef":
        """Read a graph; raises WireError with the position of an error."""
        view = memoryview(content)
        nodes: list[NodeDef] = []
        functions: dict[str, FunctionDef] = {}
        rest: list[Content] = []
        library_rest: list[Content] = []
        for name, start, begin, end in named_fields("GraphDef", view):
            if name == "node":
                nodes.append(_read_at(NodeDef, view, begin, end))
            elif name == "library":
                library = view[begin:end]
                for inner, at, value, stop in named_fields("FunctionDefLibrary", library):
                    if inner == "function":
                        function = _read_at(read_function, view, begin + value, begin + stop)
                        functions[function.name] = function
                    else:
                        library_rest.append(library[at:stop])
            else:
                rest.append(view[start:end])
        graph = cls(nodes, functions, rest, library_rest)
        graph._source = view
        return graph

    def with_nodes(self, nodes: Sequence[NodeDef]) -> "GraphDef":
        """Return the graph with other nodes."""
        if list(nodes) == list(self.nodes):
            return self
        return GraphDef(nodes, self.functions, self._rest, self._library_rest)

    def with_function(self, function: FunctionDef) -> "GraphDef":
        """Return the graph with a function added or replaced."""
        return GraphDef(self.nodes, {**self.functions, function.name: function}, self._rest, self._library_rest)

    def pieces(self) -> list[Content]:
        """Return the encoded graph in pieces, without copying."""
        if self._source is not None:
            return [self._source]
        written: list[Content] = []
        for node in self.nodes:
            written += (field_head("GraphDef", "node", len(node.piece)), node.piece)
        library: list[Content] = []
        for function in self.functions.values():
            library += (field_head("FunctionDefLibrary", "function", len(function.piece)), function.piece)
        library += self._library_rest
        if library:
            written += (field_head("GraphDef", "library", sum(map(len, library))), *library)
        return [*written, *self._rest]

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name in protocol buffers
        """Return the graph in binary format."""
        return b"".join(self.pieces())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphDef):
            return NotImplemented
        return self.SerializeToString() == other.SerializeToString()

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"GraphDef({len(self.nodes)} nodes, {len(self.functions)} functions)"


def _read_at(read: Callable[[Content], Made], view: memoryview, begin: int, end: int) -> Made:
    try:
        return read(view[begin:end])
    except WireError as error:
        raise WireError(begin + error.at, error.what) from None
