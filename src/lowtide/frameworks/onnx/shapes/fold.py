"""Evaluate short integer computations on shapes, more than inference propagates."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TypeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from lowtide.frameworks.onnx.operators.nodes import attribute_of, operator_of
from lowtide.frameworks.onnx.operators.tables import METADATA, named
from lowtide.frameworks.onnx.shapes.tensors import MOST_ELEMENTS, array_of, shape_in, short_constants

Array = NDArray[Any]

_INTEGERS = """
    Abs Add And BitShift Cast Ceil Clip Concat Div Equal Floor Gather GatherElements GatherND Greater GreaterOrEqual
    Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Pow ReduceMax ReduceMin ReduceProd ReduceSum Reshape Sign Slice
    Split Sqrt Squeeze Sub Sum Transpose Unsqueeze Where Xor
"""
_NEVER_GROWS = named(_INTEGERS)
_GROWS = named("ConstantOfShape Expand Range Tile")
"""Evaluated if inference proves the result short."""


def fold_shape_computations(model: ModelProto, types: Mapping[str, TypeProto]) -> bool:
    """Turn nodes with known short results into constants; return whether there were any."""
    opsets = list(model.opset_import)
    known = {name: array_of(tensor) for name, tensor in short_constants(model.graph).items()}
    folded = False
    for node in model.graph.node:
        value = _evaluate(node, known, types, opsets)
        if value is None:
            continue
        known[node.output[0]] = value
        node.CopyFrom(
            helper.make_node("Constant", [], [node.output[0]], name=node.name, value=numpy_helper.from_array(value))
        )
        folded = True
    return folded


def _evaluate(
    node: NodeProto, known: Mapping[str, Array], types: Mapping[str, TypeProto], opsets: list[Any]
) -> Array | None:
    operator = operator_of(node)
    if len(node.output) != 1:
        return None
    if operator in METADATA:
        return _evaluate_metadata(node, types)
    inputs = {value: known.get(value) for value in node.input if value}
    if any(value is None for value in inputs.values()) or operator not in _NEVER_GROWS | _GROWS:
        return None
    shape = shape_in(types, node.output[0])
    if operator in _GROWS and (shape is None or math.prod(shape) > MOST_ELEMENTS):
        return None
    graph = helper.make_graph([node], "fold", [], [helper.make_empty_tensor_value_info(node.output[0])])
    graph.input.extend(helper.make_empty_tensor_value_info(value) for value in inputs)
    try:
        with np.errstate(all="ignore"):
            evaluator: Any = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets))
            result: Array = evaluator.run(None, inputs)[0]
    except Exception:  # operators raise any type
        return None
    return result if result.size <= MOST_ELEMENTS else None


def _evaluate_metadata(node: NodeProto, types: Mapping[str, TypeProto]) -> Array | None:
    shape = shape_in(types, node.input[0])
    if shape is None:
        return None
    if node.op_type == "Size":
        return np.asarray(math.prod(shape), np.int64)
    start, end = attribute_of(node, "start"), attribute_of(node, "end")
    return np.asarray(shape[start.i if start else 0 : end.i if end else None], np.int64)
