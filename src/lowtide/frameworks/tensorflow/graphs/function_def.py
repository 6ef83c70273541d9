"""A function of a graph's library: a body of nodes with arguments and results."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.wire import BYTES, VARINT, Content, encode_bytes, fields, read_varint

_SIGNATURE, _NODE, _RET, _CONTROL_RET = 1, 3, 4, 6


@dataclass(frozen=True, slots=True)
class FunctionArgument:
    """One input or output of a function."""

    name: str
    type: int
    """The number of its data type, 0 where an attribute of the call tells it."""


@dataclass(frozen=True, slots=True)
class FunctionDef:
    """A function as it was read; `piece` is its message."""

    piece: Content
    name: str
    inputs: tuple[FunctionArgument, ...]
    outputs: tuple[FunctionArgument, ...]
    is_stateful: bool
    nodes: Sequence[NodeDef]
    results: dict[str, str] = field(default_factory=dict[str, str])
    """Per output, the value in the body: "node:output:0", or the name of an input."""
    control_results: tuple[str, ...] = ()
    """Nodes of the body that must run."""

    def with_nodes(self, nodes: Sequence[NodeDef]) -> "FunctionDef":
        """Return the function with other nodes and all else as it is."""
        pieces = [
            self.piece[start:end]
            for number, _, start, _, end in fields(self.piece, 0, len(self.piece))
            if number != _NODE
        ]
        return read_function(b"".join((*pieces, *(encode_bytes(_NODE, node.piece) for node in nodes))))


def read_function(piece: Content) -> FunctionDef:
    """Read a function; raises WireError for what is none."""
    name, stateful = "", False
    inputs: list[FunctionArgument] = []
    outputs: list[FunctionArgument] = []
    nodes: list[NodeDef] = []
    results: dict[str, str] = {}
    controls: list[str] = []
    for number, wire, _, begin, end in fields(piece, 0, len(piece)):
        if wire != BYTES:
            continue
        if number == _SIGNATURE:
            for inner, inner_wire, _, at, stop in fields(piece, begin, end):
                if inner == 1 and inner_wire == BYTES:
                    name = str(piece[at:stop], "utf-8", "replace")
                elif inner == 2 and inner_wire == BYTES:
                    inputs.append(_argument(piece, at, stop))
                elif inner == 3 and inner_wire == BYTES:
                    outputs.append(_argument(piece, at, stop))
                elif inner == 17 and inner_wire == VARINT:
                    stateful = bool(read_varint(piece, at, stop)[0])
        elif number == _NODE:
            nodes.append(NodeDef(piece[begin:end]))
        elif number == _RET:
            key, value = _text_entry(piece, begin, end)
            results[key] = value
        elif number == _CONTROL_RET:
            controls.append(_text_entry(piece, begin, end)[1])
    return FunctionDef(piece, name, tuple(inputs), tuple(outputs), stateful, nodes, results, tuple(controls))


def _argument(piece: Content, begin: int, end: int) -> FunctionArgument:
    name, kind = "", 0
    for number, wire, _, at, stop in fields(piece, begin, end):
        if number == 1 and wire == BYTES:
            name = str(piece[at:stop], "utf-8", "replace")
        elif number == 3 and wire == VARINT:
            kind = read_varint(piece, at, stop)[0]
    return FunctionArgument(name, kind)


def _text_entry(piece: Content, begin: int, end: int) -> tuple[str, str]:
    found = {1: "", 2: ""}
    for number, wire, _, at, stop in fields(piece, begin, end):
        if wire == BYTES and number in found:
            found[number] = str(piece[at:stop], "utf-8", "replace")
    return found[1], found[2]
