"""Shapes inside functions: what nodes record, and what TensorFlow infers from the shapes of a call's arguments."""

from collections.abc import Sequence
from importlib.util import find_spec

from lowtide.core.errors import InputError
from lowtide.frameworks.tensorflow.graphs.attributes import Shape, of_type
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.reading.body import NodeBody
from lowtide.frameworks.tensorflow.shapes.infer import infer_shapes
from lowtide.frameworks.tensorflow.shapes.sizes import Shapes, is_full, known_shapes, output_types


def function_shapes(body: NodeBody, arguments: Sequence[Shape], graph: GraphDef) -> Shapes:
    """Return the shapes of all outputs in the body of a function for arguments of some shapes; see `completed`."""
    recorded = known_shapes(body.nodes, {})
    for argument, shape in zip(body.nodes[: body.n_arguments], arguments, strict=False):
        recorded[argument.name, 0] = shape
    return completed(body, recorded, graph)


def completed(body: NodeBody, known: Shapes, graph: GraphDef) -> Shapes:
    """Return the shapes of all outputs in a body.

    What is not known in full is inferred, where TensorFlow is installed and takes the body as a graph.
    """
    outputs = ((node, port) for node in body.nodes for port in range(len(output_types(node))))
    if find_spec("tensorflow") is None or all(is_full(known.get((node.name, port))) for node, port in outputs):
        return known
    try:
        return infer_shapes(graph.with_nodes(_as_graph(body)), known, body.where)
    except InputError:
        return known


def _as_graph(body: NodeBody) -> list[NodeDef]:
    """Return the body as nodes of a graph: arguments are placeholders, and outputs are named by their numbers."""
    nodes = [
        NodeDef.make(node.name, "Placeholder", (), {"dtype": of_type(output_types(node)[0])})
        for node in body.nodes[: body.n_arguments]
    ]
    for place in range(body.n_arguments, len(body.nodes)):
        reads = [f"{body.nodes[source].name}:{port}" for source, port in body.data[place]]
        waits = [f"^{body.nodes[source].name}" for source in body.controls[place]]
        nodes.append(body.nodes[place].with_inputs([*reads, *waits]))
    return nodes
