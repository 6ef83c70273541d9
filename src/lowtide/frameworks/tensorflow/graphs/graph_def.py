"""A GraphDef: nodes, a library of functions, and everything else as it was read."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from lowtide.frameworks.tensorflow.graphs.function_def import FunctionDef, read_function
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.wire import BYTES, Content, WireError, encode_varint, fields

_NODE, _LIBRARY = 1, 2
Made = TypeVar("Made")


class GraphDef:
    """A graph of TensorFlow without protocol buffers; contents of constants stay where they were read.

    Two are equal where their bytes are.
    """

    def __init__(
        self,
        nodes: Sequence[NodeDef] = (),
        functions: Mapping[str, FunctionDef] | None = None,
        rest: Sequence[Content] = (),
        library_rest: Sequence[Content] = (),
    ) -> None:
        """`rest` and `library_rest` are the other fields of the graph and of its library, as they are written."""
        self.nodes = nodes
        self.functions = dict(functions or {})
        self._rest = rest
        self._library_rest = library_rest
        self._source: Content | None = None

    @classmethod
    def parse(cls, content: Content) -> "GraphDef":
        """Read a graph; raises WireError with the place for what is none."""
        view = memoryview(content)
        nodes: list[NodeDef] = []
        functions: dict[str, FunctionDef] = {}
        rest: list[Content] = []
        library_rest: list[Content] = []
        for number, wire, start, begin, end in fields(view, 0, len(view)):
            if number == _NODE and wire == BYTES:
                nodes.append(_placed(NodeDef, view, begin, end))
            elif number == _LIBRARY and wire == BYTES:
                for inner, inner_wire, at, value, stop in fields(view, begin, end):
                    if inner == 1 and inner_wire == BYTES:
                        function = _placed(read_function, view, value, stop)
                        functions[function.name] = function
                    else:
                        library_rest.append(view[at:stop])
            else:
                rest.append(view[start:end])
        graph = cls(nodes, functions, rest, library_rest)
        graph._source = view
        return graph

    def with_nodes(self, nodes: Sequence[NodeDef]) -> "GraphDef":
        """Return the graph with other nodes; one with the same nodes is written as it was read."""
        if list(nodes) == list(self.nodes):
            return self
        return GraphDef(nodes, self.functions, self._rest, self._library_rest)

    def with_function(self, function: FunctionDef) -> "GraphDef":
        """Return the graph with another body for a function of its library."""
        return GraphDef(self.nodes, {**self.functions, function.name: function}, self._rest, self._library_rest)

    def pieces(self) -> list[Content]:
        """Return what is written one after the other: contents that were read are not copied."""
        if self._source is not None:
            return [self._source]
        written: list[Content] = []
        for node in self.nodes:
            written += (_head(_NODE, len(node.piece)), node.piece)
        library: list[Content] = []
        for function in self.functions.values():
            library += (_head(1, len(function.piece)), function.piece)
        library += self._library_rest
        if library:
            written += (_head(_LIBRARY, sum(map(len, library))), *library)
        return [*written, *self._rest]

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name that protocol buffers have for it
        """Return the graph in the binary format."""
        return b"".join(self.pieces())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphDef):
            return NotImplemented
        return self.SerializeToString() == other.SerializeToString()

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"GraphDef({len(self.nodes)} nodes, {len(self.functions)} functions)"


def _head(number: int, size: int) -> bytes:
    return encode_varint(number << 3 | BYTES) + encode_varint(size)


def _placed(read: Callable[[Content], Made], view: memoryview, begin: int, end: int) -> Made:
    """Read a part; the place in an error is that in the whole."""
    try:
        return read(view[begin:end])
    except WireError as error:
        raise WireError(begin + error.at, error.what) from None
