"""Short tensors inside a model: the ones whose content may decide a shape or a mode."""

import math
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from lowtide.core.errors import MalformedInputError, one_line
from lowtide.frameworks.onnx.operators.nodes import operator_of
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
        content = _content(node) if operator_of(node) in CONSTANTS else None
        if content is not None:
            given[node.output[0]] = content
    return {name: tensor for name, tensor in given.items() if is_short(tensor)}


def _content(constant: NodeProto) -> TensorProto | None:
    """Return a tensor or whole numbers that a Constant node gives; None for other kinds, which decide nothing."""
    for attribute in constant.attribute:
        if attribute.name == "value":
            return attribute.t
        if attribute.name == "value_int":
            return helper.make_tensor(constant.output[0], TensorProto.INT64, [], [attribute.i])
        if attribute.name == "value_ints":
            return helper.make_tensor(constant.output[0], TensorProto.INT64, [len(attribute.ints)], attribute.ints)
    return None
