"""What a graph says itself of its outputs: data types and shapes."""

from collections.abc import Mapping, Sequence

from lowtide.frameworks.tensorflow.graphs.attributes import Shape, integer, shape, shapes, tensor_shape
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators.kinds import BYTES_OF_TYPES, PLACEHOLDERS, VARIABLES
from lowtide.frameworks.tensorflow.operators.ops import RESOURCE, spec_of

RECORDED = "_output_shapes"
Sizes = dict[tuple[str, int], int | None]
"""Bytes by node and output, None where they are not known."""
Shapes = Mapping[tuple[str, int], Shape]
_WITH_SHAPE = PLACEHOLDERS | VARIABLES


def output_types(node: NodeDef) -> list[int]:
    """Return the data type of every output; empty where nothing is known of the op."""
    spec = spec_of(node.op)
    return [] if spec is None else [kind - 100 if kind > 100 else kind for kind in spec.output_types(node)]


def recorded_shapes(node: NodeDef) -> list[Shape] | None:
    """Return the shapes that a node records of its outputs, None where it does not."""
    value = node.attribute(RECORDED)
    if value is not None:
        return shapes(value)
    if node.op in _WITH_SHAPE and node.op != "_Arg":
        return [shape(node.attribute("shape"))]
    if node.op == "Const":
        return [_constant_shape(node)]
    return None


def bytes_of(sizes: Shape, kind: int) -> int | None:
    """Return the bytes of a tensor, None where its shape is not known."""
    if kind == RESOURCE or kind not in BYTES_OF_TYPES:
        return 0
    if sizes is None or not is_full(sizes):
        return None
    count = BYTES_OF_TYPES[kind]
    for size in sizes:
        count *= size
    return count


def is_full(sizes: Shape) -> bool:
    """Return whether all sizes of a shape are known."""
    return sizes is not None and min(sizes, default=0) >= 0


def variable_bytes(node: NodeDef) -> int | None:
    """Return the bytes of the variable that a node names."""
    return bytes_of(shape(node.attribute("shape")), integer(node.attribute("dtype")) % 100)


def known_shapes(nodes: Sequence[NodeDef], given: Mapping[str, Sequence[int]]) -> dict[tuple[str, int], Shape]:
    """Return what is known of shapes by node and output: what is given counts before what nodes record."""
    found: dict[tuple[str, int], Shape] = {}
    for node in nodes:
        for port, sizes in enumerate(recorded_shapes(node) or ()):
            found[node.name, port] = sizes
    for name, sizes in given.items():
        node, _, port = name.partition(":")
        found[node, int(port or 0)] = tuple(sizes)
    return found


def bytes_by_output(nodes: Sequence[NodeDef], shapes: Shapes | None = None) -> Sizes:
    """Return the bytes of the outputs of nodes, from their shapes: what the nodes record, unless others are given."""
    found: Sizes = {}
    known = known_shapes(nodes, {}) if shapes is None else shapes
    for node in nodes:
        for port, kind in enumerate(output_types(node)):
            found[node.name, port] = bytes_of(known.get((node.name, port)), kind)
    return found


def _constant_shape(node: NodeDef) -> Shape:

    return tensor_shape(node.attribute("value"))
