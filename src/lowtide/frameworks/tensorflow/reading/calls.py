"""Calls of library functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from lowtide.core.errors import InputError, MalformedInputError
from lowtide.frameworks.tensorflow.graphs.attributes import Shape, functions, of_type
from lowtide.frameworks.tensorflow.graphs.graph_def import FunctionDef, GraphDef
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators import BRANCHES, CALLING, FUNCTION_ATTRIBUTES, LOOPS
from lowtide.frameworks.tensorflow.reading.body import NodeBody
from lowtide.frameworks.tensorflow.shapes import (
    Shapes,
    bytes_of,
    infer_shapes,
    is_full,
    known_shapes,
    output_types,
    recorded_shapes,
)


@dataclass(frozen=True, slots=True)
class NodeCall:
    """The functions that a node calls."""

    kind: str
    """The op's: "while", "call" or "conditional" for a call."""
    functions: Sequence[FunctionDef]
    n_outputs: int | None
    """None if the op determines it."""
    n_skipped: int = 0
    """Inputs before the arguments."""

    def output_bytes(self, node: NodeDef, port: int) -> int | None:
        recorded = recorded_shapes(node) or ()
        if not self.functions or port >= min(len(recorded), len(self.functions[0].outputs)):
            return None
        return bytes_of(recorded[port], self.functions[0].outputs[port].type)


def call_of(node: NodeDef, graph: GraphDef, where: str) -> NodeCall:
    """Return a node's call; raises MalformedInputError for a function missing in the library."""
    if node.op in graph.functions:
        function = graph.functions[node.op]
        return NodeCall("call", [function], len(function.outputs))
    if node.op not in CALLING:
        return NodeCall(node.op, (), None)
    names = [name for attribute in FUNCTION_ATTRIBUTES for name in functions(node.attribute(attribute))]
    for name in names:
        if name not in graph.functions:
            raise MalformedInputError(
                f"{where}: node {node.name!r} calls function {name!r}, which is not in the library; the graph was cut"
            )
    kind = "while" if node.op in LOOPS else "conditional" if node.op in BRANCHES else "call"
    return NodeCall(kind, [graph.functions[name] for name in dict.fromkeys(names)], None, int(node.op in BRANCHES))


def invariant_arguments(function: FunctionDef, body: NodeBody) -> set[int]:
    """Return the arguments that a loop never changes."""
    same: set[int] = set()
    for place, output in enumerate(function.outputs):
        source = function.results.get(output.name)
        node = None if source is None else body.port(source)[0]
        while node is not None and node >= body.n_arguments and body.nodes[node].op == "Identity" and body.data[node]:
            node = body.data[node][0][0]
        if node == place:
            same.add(place)
    return same


def function_shapes(body: NodeBody, arguments: Sequence[Shape], graph: GraphDef) -> Shapes:
    recorded = known_shapes(body.nodes, {})
    for argument, shape in zip(body.nodes[: body.n_arguments], arguments, strict=False):
        recorded[argument.name, 0] = shape
    return completed_shapes(body, recorded, graph)


def completed_shapes(body: NodeBody, known: Shapes, graph: GraphDef) -> Shapes:
    """Return all outputs' shapes, inferred if TensorFlow is installed and accepts the body."""
    outputs = ((node, port) for node in body.nodes for port in range(len(output_types(node))))
    if find_spec("tensorflow") is None or all(is_full(known.get((node.name, port))) for node, port in outputs):
        return known
    try:
        return infer_shapes(graph.with_nodes(_as_graph(body)), known, body.where)
    except InputError:
        return known


def _as_graph(body: NodeBody) -> list[NodeDef]:
    """Arguments become placeholders."""
    nodes = [
        NodeDef.make(node.name, "Placeholder", (), {"dtype": of_type(output_types(node)[0])})
        for node in body.nodes[: body.n_arguments]
    ]
    for place in range(body.n_arguments, len(body.nodes)):
        reads = [f"{body.nodes[source].name}:{port}" for source, port in body.data[place]]
        waits = [f"^{body.nodes[source].name}" for source in body.controls[place]]
        nodes.append(body.nodes[place].with_inputs([*reads, *waits]))
    return nodes
