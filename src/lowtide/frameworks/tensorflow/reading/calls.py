"""What a node calls: functions of the library, for branches, loops and plain calls."""

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.core.errors import MalformedInputError
from lowtide.frameworks.tensorflow.graphs.attributes import functions
from lowtide.frameworks.tensorflow.graphs.graph_def import FunctionDef, GraphDef
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators.kinds import BRANCHES, CALLING, FUNCTION_ATTRIBUTES, LOOPS
from lowtide.frameworks.tensorflow.reading.body import NodeBody
from lowtide.frameworks.tensorflow.shapes.sizes import bytes_of, recorded_shapes


@dataclass(frozen=True, slots=True)
class NodeCall:
    """What calling means for a node."""

    kind: str
    """The kind of the op; "while", "call" and "conditional" mean that its results are those of a body."""
    functions: Sequence[FunctionDef]
    n_outputs: int | None
    """How many outputs the node has, None where its op tells that."""
    n_left_out: int = 0
    """How many of the node's first inputs are not arguments: what is branched on."""

    def output_bytes(self, node: NodeDef, port: int) -> int | None:
        """Return the bytes of an output by the types of the functions and the shapes that the node records."""
        recorded = recorded_shapes(node) or ()
        if not self.functions or port >= min(len(recorded), len(self.functions[0].outputs)):
            return None
        return bytes_of(recorded[port], self.functions[0].outputs[port].type)


def call_of(node: NodeDef, graph: GraphDef, where: str) -> NodeCall:
    """Return what a node calls; raises MalformedInputError for a function that the library does not have."""
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
    """Return the arguments that a function gives back where it took them: what a loop never changes."""
    same: set[int] = set()
    for place, output in enumerate(function.outputs):
        source = function.results.get(output.name)
        node = None if source is None else body.port(source)[0]
        while node is not None and node >= body.n_arguments and body.nodes[node].op == "Identity" and body.data[node]:
            node = body.data[node][0][0]
        if node == place:
            same.add(place)
    return same
