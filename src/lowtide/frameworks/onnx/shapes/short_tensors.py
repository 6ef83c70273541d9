"""Short tensors inside a model: the ones whose content may decide a shape or a mode."""

import math
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from onnx import GraphProto, TensorProto, numpy_helper

from lowtide.errors import MalformedInputError, one_line
from lowtide.frameworks.onnx.operators.nodes import attribute_of, operator_of
from lowtide.frameworks.onnx.operators.tables import CONSTANTS

MOST_ELEMENTS = 1024
"""Larger tensors decide no shapes: those are short lists of integers."""


def is_short(tensor: TensorProto) -> bool:
    """Return whether a tensor's data is in the model and short enough to decide shapes."""
    return tensor.data_location != TensorProto.EXTERNAL and math.prod(tensor.dims) <= MOST_ELEMENTS


def array_of(tensor: TensorProto) -> NDArray[Any]:
    """Return the content of a short tensor; raises MalformedInputError where data and dimensions disagree."""
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise MalformedInputError(f"tensor {tensor.name!r} does not hold what it declares: {one_line(error)}") from None


def short_constants(graph: GraphProto) -> Mapping[str, TensorProto]:
    """Return by name the short tensors that a graph gives its nodes: weights, and results of Constant nodes."""
    given = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        content = attribute_of(node, "value") if operator_of(node) in CONSTANTS else None
        if content is not None:
            given[node.output[0]] = content.t
    return {name: tensor for name, tensor in given.items() if is_short(tensor)}
