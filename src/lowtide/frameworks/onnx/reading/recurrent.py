"""The workspaces of recurrent kernels: the gates of all steps at once, and some vectors beside them."""

from collections.abc import Mapping

from onnx import NodeProto, TypeProto

from lowtide.frameworks.onnx.operators.nodes import attribute_of, int_of, operator_of
from lowtide.frameworks.onnx.shapes.sizes import static_shape

RECURRENT = frozenset({("", "LSTM"), ("", "GRU"), ("", "RNN")})
_LAST_STATES = {"LSTM": 2, "GRU": 1}
_BYTES = 4
"""Of a float; numbers of steps are as large."""


def recurrent_bytes(node: NodeProto, types: Mapping[str, TypeProto]) -> int:
    """Return the workspace of an LSTM, GRU or RNN of floats on one thread; 0 where a shape is not known.

    Source: allocations of ONNX Runtime 1.31, counted over shapes, directions and biases.
    """
    inputs, weights = (static_shape(types.get(name, TypeProto())) for name in (node.input[0], node.input[2]))
    if inputs is None or weights is None or len(inputs) != 3 or len(weights) != 3:
        return 0
    steps, batch, features = inputs
    directions, _, hidden = weights
    state, has_bias = batch * hidden, len(node.input) > 3 and bool(node.input[3])
    _, kind = operator_of(node)
    if kind == "RNN":
        return _BYTES * steps * state
    if kind == "LSTM":
        elements = 4 * steps * state + 3 * state + (6 if has_bias else 2) * hidden
    else:
        resets_late = bool(int_of(node, "linear_before_reset"))
        elements = 3 * steps * state + (2 + resets_late + has_bias * (3 + resets_late)) * state
    direction = attribute_of(node, "direction")
    # A last state that nobody asked for is kept all the same.
    missing = _LAST_STATES[kind] - sum(map(bool, node.output[1:]))
    turned = steps * batch * (features + hidden) if direction is not None and direction.s != b"forward" else 0
    return _BYTES * (directions * (elements + batch + missing * state) + turned)
