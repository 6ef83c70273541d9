"""Shapes and bytes of outputs."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from math import prod
from typing import Any, TypeGuard

from lowtide.core.errors import MalformedInputError, UnsupportedError, one_line
from lowtide.frameworks.tensorflow.graphs.attributes import (
    Shape,
    integer,
    of_shape,
    of_shapes,
    shape,
    shapes,
    tensor_shape,
)
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators import BYTES_OF_TYPES, CALLING, PLACEHOLDERS, RESOURCE, VARIABLES, spec_of

_RECORDED = "_output_shapes"
Sizes = dict[tuple[str, int], int | None]
"""Bytes by node and output, None if unknown."""
Shapes = Mapping[tuple[str, int], Shape]
_WITH_SHAPE = PLACEHOLDERS | VARIABLES


def output_types(node: NodeDef) -> list[int]:
    """Return every output's data type; nothing for an unknown op."""
    spec = spec_of(node.op)
    return [] if spec is None else [kind - 100 if kind > 100 else kind for kind in spec.output_types(node)]


def recorded_shapes(node: NodeDef) -> list[Shape] | None:
    value = node.attribute(_RECORDED)
    if value is not None:
        return shapes(value)
    if node.op in _WITH_SHAPE and node.op != "_Arg":
        return [shape(node.attribute("shape"))]
    if node.op == "Const":
        return [tensor_shape(node.attribute("value"))]
    return None


def bytes_of(sizes: Shape, kind: int) -> int | None:
    """Return a tensor's bytes, None if a size is unknown."""
    if kind == RESOURCE or kind not in BYTES_OF_TYPES:
        return 0
    return BYTES_OF_TYPES[kind] * prod(sizes) if is_full(sizes) else None


def is_full(sizes: Shape) -> TypeGuard[tuple[int, ...]]:
    """Return whether all sizes are known."""
    return sizes is not None and min(sizes, default=0) >= 0


def variable_bytes(node: NodeDef) -> int | None:
    return bytes_of(shape(node.attribute("shape")), integer(node.attribute("dtype")) % 100)


def known_shapes(nodes: Sequence[NodeDef], given: Mapping[str, Sequence[int]]) -> dict[tuple[str, int], Shape]:
    """Return shapes by node and output, given or else recorded."""
    found: dict[tuple[str, int], Shape] = {}
    for node in nodes:
        for port, sizes in enumerate(recorded_shapes(node) or ()):
            found[node.name, port] = sizes
    for name, sizes in given.items():
        node, _, port = name.partition(":")
        found[node, int(port or 0)] = tuple(sizes)
    return found


def bytes_by_output(nodes: Sequence[NodeDef], shapes: Shapes | None = None) -> Sizes:
    found: Sizes = {}
    known = known_shapes(nodes, {}) if shapes is None else shapes
    for node in nodes:
        for port, kind in enumerate(output_types(node)):
            found[node.name, port] = bytes_of(known.get((node.name, port)), kind)
    return found


def infer_shapes(graph: GraphDef, known: Mapping[tuple[str, int], Shape], where: str) -> dict[tuple[str, int], Shape]:
    """Return the shapes of all outputs, inferred by TensorFlow if not in `known`.

    Raises UnsupportedError without TensorFlow, MalformedInputError if it refuses the graph.
    """
    if find_spec("tensorflow") is None:
        raise UnsupportedError(
            f"{where}: the graph does not record all its shapes; write it with graph.as_graph_def(add_shapes=True), or "
            "install TensorFlow to infer them: pip install 'lowtide[tensorflow]'"
        )
    from lowtide.frameworks.tensorflow.session import imported_graph

    bound = graph.with_nodes([_bound(node, known) for node in graph.nodes])
    try:
        imported: Any = imported_graph(bound)
    except Exception as error:  # TensorFlow raises several types
        raise MalformedInputError(f"{where}: TensorFlow refuses the graph: {one_line(error)}") from None
    found = dict(known)
    for operation in imported.get_operations():
        for port, output in enumerate(operation.outputs):
            if not is_full(found.get((operation.name, port))):
                rank = output.shape.rank
                found[operation.name, port] = (
                    None if rank is None else tuple(-1 if size is None else size for size in output.shape.as_list())
                )
    return found


def _bound(node: NodeDef, known: Mapping[tuple[str, int], Shape]) -> NodeDef:
    if node.op in CALLING:
        results = recorded_shapes(node) or ()
        found = [known.get((node.name, port), sizes) for port, sizes in enumerate(results)]
        return node.with_attributes({_RECORDED: of_shapes(found)}) if found else node
    sizes = known.get((node.name, 0))
    return node if node.op not in PLACEHOLDERS or sizes is None else node.with_attributes({"shape": of_shape(sizes)})
