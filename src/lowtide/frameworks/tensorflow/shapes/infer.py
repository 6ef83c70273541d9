"""Shapes that a graph does not record, inferred by TensorFlow where it is installed."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from lowtide.core.errors import MalformedInputError, UnsupportedError, one_line
from lowtide.frameworks.tensorflow.graphs.attributes import Shape, of_shape, of_shapes
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators.kinds import CALLING, PLACEHOLDERS
from lowtide.frameworks.tensorflow.shapes.sizes import RECORDED, recorded_shapes


def infer_shapes(graph: GraphDef, known: Mapping[tuple[str, int], Shape], where: str) -> dict[tuple[str, int], Shape]:
    """Return the shapes of all outputs, as far as they do not depend on contents; what is known counts first.

    Raises UnsupportedError where TensorFlow is not installed, MalformedInputError where it refuses the graph.
    """
    if find_spec("tensorflow") is None:
        raise UnsupportedError(
            f"{where}: the graph does not record all its shapes; write it with graph.as_graph_def(add_shapes=True), or "
            "let them be inferred: pip install 'lowtide[tensorflow]'"
        )
    from lowtide.frameworks.tensorflow.running.session import imported_graph

    bound = graph.with_nodes([_bound(node, known) for node in graph.nodes])
    try:
        imported: Any = imported_graph(bound)
    except Exception as error:  # TensorFlow raises several types of its own
        raise MalformedInputError(f"{where}: TensorFlow refuses the graph: {one_line(error)}") from None
    found = dict(known)
    for operation in imported.get_operations():
        for port, output in enumerate(operation.outputs):
            sizes = found.get((operation.name, port))
            if sizes is None or min(sizes, default=0) < 0:
                rank = output.shape.rank
                found[operation.name, port] = (
                    None if rank is None else tuple(-1 if size is None else size for size in output.shape.as_list())
                )
    return found


def _bound(node: NodeDef, known: Mapping[tuple[str, int], Shape]) -> NodeDef:
    if node.op in CALLING:
        results = recorded_shapes(node) or ()
        found = [known.get((node.name, port), sizes) for port, sizes in enumerate(results)]
        return node.with_attributes({RECORDED: of_shapes(found)}) if found else node
    sizes = known.get((node.name, 0))
    return node if node.op not in PLACEHOLDERS or sizes is None else node.with_attributes({"shape": of_shape(sizes)})
