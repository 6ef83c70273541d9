"""Small graphs of TensorFlow, written without it."""

from collections.abc import Sequence

from lowtide.frameworks.tensorflow.graphs.attributes import of_shape, of_shapes, of_type
from lowtide.tensorflow import GraphDef, NodeDef

FLOAT = 1


def placeholder(name: str, shape: Sequence[int] | None) -> NodeDef:
    """Return a placeholder of floats."""
    sizes = None if shape is None else tuple(shape)
    return NodeDef.make(name, "Placeholder", (), {"dtype": of_type(FLOAT), "shape": of_shape(sizes)})


def node(name: str, op: str, inputs: Sequence[str], shape: Sequence[int] = (256,), **attributes: bytes) -> NodeDef:
    """Return a node with one output of floats, of a recorded shape."""
    recorded = {"T": of_type(FLOAT), "_output_shapes": of_shapes([tuple(shape)])}
    return NodeDef.make(name, op, inputs, recorded | attributes)


def chain(kinds: Sequence[str], shape: Sequence[int] = (256,)) -> GraphDef:
    """Return nodes n0, n1, … of kinds, each reading the one before; the first reads the placeholder x."""
    nodes = [placeholder("x", shape)]
    for number, kind in enumerate(kinds):
        nodes.append(node(f"n{number}", kind, [nodes[-1].name], shape))
    return GraphDef(nodes)
