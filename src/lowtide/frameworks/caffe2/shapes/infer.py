"""Infer every blob's type without running the net."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from lowtide.core.errors import GraphError
from lowtide.frameworks.caffe2.nets.arguments import Arguments
from lowtide.frameworks.caffe2.shapes.rules import RULES, channel_axis
from lowtide.frameworks.caffe2.shapes.tensor_type import TensorType

_MOST_ELEMENTS = 2**59
OpTypes = Sequence["TensorType | None"]
_Values = tuple[int, ...]

_COPIES = frozenset(("Copy", "Alias", "StopGradient", "CopyOnDeviceLike", "CopyFromCPUInput", "CopyToCPU"))
_INPUT_AS_ARGUMENT: Mapping[str, tuple[int, str]] = {"Reshape": (1, "shape"), "Split": (1, "split")}


def infer_types(net: Any, known: Mapping[str, TensorType]) -> list[OpTypes]:
    """Return the output types of each op, None if unknown; raises GraphError for impossible sizes.

    An in-place op without a rule keeps its input's type.
    """
    types: dict[str, TensorType] = dict(known)
    values: dict[str, _Values] = {}
    result: list[OpTypes] = []
    for position, op in enumerate(net.op):
        outputs = _outputs(op, types, values)
        written = _written_values(op, [types.get(name) for name in op.input], values)
        for name in op.output:
            values.pop(name, None)
        values.update(written)
        result.append(outputs)
        for name, kind in zip(op.output, outputs, strict=True):
            if kind is None:
                types.pop(name, None)
            elif prod(kind.shape) > _MOST_ELEMENTS or min(kind.shape, default=0) < 0:
                raise GraphError(
                    f"op {position} ({op.type}): blob {name!r} has the impossible shape {list(kind.shape)}"
                )
            else:
                types[name] = kind
    return result


def last_types(net: Any, known: Mapping[str, TensorType]) -> dict[str, TensorType]:
    found: dict[str, TensorType] = {}
    for op, outputs in zip(net.op, infer_types(net, known), strict=True):
        found.update((name, kind) for name, kind in zip(op.output, outputs, strict=True) if kind is not None)
    return found


def _outputs(op: Any, types: Mapping[str, TensorType], values: Mapping[str, _Values]) -> OpTypes:
    rule = RULES.get(op.type)
    names, settings = _with_known_inputs(op, values)
    inputs = [types.get(name) for name in names]
    found: list[TensorType] | None = None
    if rule is not None and None not in inputs:
        try:
            found = rule([kind for kind in inputs if kind is not None], settings, len(op.output))
        except (IndexError, ValueError, KeyError):
            found = None
    if found is None or len(found) != len(op.output):
        return [types.get(name) if name in op.input else None for name in op.output]
    return found


def _with_known_inputs(op: Any, known: Mapping[str, _Values]) -> tuple[list[str], Arguments]:
    settings, inputs = Arguments(op), list(op.input)
    place, name = _INPUT_AS_ARGUMENT.get(op.type, (0, ""))
    if name and len(inputs) == place + 1 and inputs[place] in known:
        return inputs[:place], settings.with_integers(name, known[inputs[place]])
    if op.type == "ConstantFill" and settings.integer("input_as_shape") and inputs and inputs[0] in known:
        return [], settings.with_integers("shape", known[inputs[0]])
    return inputs, settings


def _written_values(op: Any, inputs: OpTypes, known: Mapping[str, _Values]) -> dict[str, _Values]:
    found: dict[str, _Values] = {}
    settings, first = Arguments(op), inputs[0] if inputs else None
    if op.type in _COPIES and op.input[0] in known:
        found[op.output[0]] = known[op.input[0]]
    elif op.type == "Shape" and first is not None:
        axes = settings.integers("axes") or range(len(first.shape))
        if all(0 <= axis < len(first.shape) for axis in axes):
            found[op.output[0]] = tuple(first.shape[axis] for axis in axes)
    elif op.type == "Reshape" and first is not None and len(op.output) > 1:
        found[op.output[1]] = first.shape
    elif op.type in ("Concat", "DepthConcat") and len(op.output) > 1 and first is not None and None not in inputs:
        axis = channel_axis(settings, len(first.shape))
        joined = [kind.shape for kind in inputs if kind is not None]
        if settings.integer("add_axis"):
            found[op.output[1]] = (1,) * len(joined)
        elif all(0 <= axis < len(shape) for shape in joined):
            found[op.output[1]] = tuple(shape[axis] for shape in joined)
    elif op.type.startswith("GivenTensorInt"):
        found[op.output[0]] = tuple(settings.integers("values"))
    return found
