"""Which nodes must neither run twice nor change places: random draws and operators nobody knows."""

from onnx import GraphProto, NodeProto

from lowtide.frameworks.onnx.operators import operator_of
from lowtide.frameworks.onnx.tables import KNOWN_DOMAINS, RANDOM
from lowtide.frameworks.onnx.tensors import array_of, is_short


def is_opaque(node: NodeProto) -> bool:
    """Return whether nothing is known about a node's operator, so that it may do anything."""
    return operator_of(node)[0] not in KNOWN_DOMAINS


def draws_random(node: NodeProto, graph: GraphProto) -> bool:
    """Return whether a node draws random numbers; Dropout does in training mode, or where the mode is not known."""
    operator = operator_of(node)
    if operator != ("", "Dropout"):
        return operator in RANDOM
    if len(node.input) < 3 or not node.input[2]:
        return False
    mode = next((tensor for tensor in graph.initializer if tensor.name == node.input[2] and is_short(tensor)), None)
    return mode is None or bool(array_of(mode).any())
