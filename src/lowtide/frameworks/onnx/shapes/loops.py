"""How often a Loop runs, where the file tells."""

from onnx import GraphProto, NodeProto

from lowtide.frameworks.onnx.operators.nodes import operator_of
from lowtide.frameworks.onnx.shapes.short_tensors import array_of, short_constants


def runs_of_loop(graph: GraphProto, node: NodeProto, body: GraphProto) -> int | None:
    """Return how often a Loop of a graph runs its body; None where a run may end it, or where only a run tells."""
    if len(body.input) < 2 or not body.output or not _goes_on(body):
        return None
    first = _constant(graph, node.input[1]) if len(node.input) > 1 and node.input[1] else True
    count = _constant(graph, node.input[0]) if node.input and node.input[0] else None
    return None if first is None or count is None else max(count, 0) if first else 0


def _goes_on(body: GraphProto) -> bool:
    """Tell whether a body hands on the condition under which it runs."""
    condition, given = body.output[0].name, body.input[1].name
    makers = {name: inner for inner in body.node for name in inner.output}
    while condition in makers and operator_of(makers[condition]) == ("", "Identity"):
        condition = makers[condition].input[0]
    return condition == given


def _constant(graph: GraphProto, name: str) -> int | None:
    tensor = short_constants(graph).get(name)
    if tensor is None:
        return None
    array = array_of(tensor)
    return int(array.item()) if array.size == 1 and array.dtype.kind in "iub" else None
