"""What is known of the blobs of a step net: rows of the sequences outside, and the blobs of the net around it."""

from collections.abc import Mapping
from typing import Any

from lowtide.frameworks.caffe2.nets.recurrent import Ties
from lowtide.frameworks.caffe2.shapes.tensor_type import TensorType


def step_types(ties: Ties, op: Any, outer: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """Return the types of blobs that a step net finds; `outer` are those of the net around it."""
    states = dict(ties.states)
    result = dict(outer)
    batch = next((kind.shape[1] for name in op.input if (kind := outer.get(name)) and len(kind.shape) > 2), 1)
    for link in ties.links:
        kind = outer.get(states.get(link.outer, link.outer))
        if kind is not None and kind.shape:
            row = (batch, kind.shape[-1]) if link.outer in states else kind.shape[1:]
            result[link.inner] = kind.with_shape(link.window, *row)
    result[ties.timestep] = TensorType((1,), "int32")
    return result
