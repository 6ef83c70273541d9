"""Whole numbers in blobs that are known without running anything: shapes and lengths that ops hand to one another."""

from collections.abc import Mapping, Sequence
from typing import Any

from lowtide.frameworks.caffe2.nets.arguments import Arguments
from lowtide.frameworks.caffe2.shapes.rules import channel_axis
from lowtide.frameworks.caffe2.shapes.tensor_type import TensorType

Values = tuple[int, ...]

_PASSED_ON = frozenset(("Copy", "Alias", "StopGradient", "CopyOnDeviceLike", "CopyFromCPUInput", "CopyToCPU"))
_AS_SETTING: Mapping[str, tuple[int, str]] = {"Reshape": (1, "shape"), "Split": (1, "split")}
"""Which input of an op says the same as one of its settings."""


def written_values(op: Any, inputs: Sequence[TensorType | None], known: Mapping[str, Values]) -> dict[str, Values]:
    """Return what the outputs of an op hold, of those that can be told; `known` is what blobs held before."""
    found: dict[str, Values] = {}
    settings, first = Arguments(op), inputs[0] if inputs else None
    if op.type in _PASSED_ON and op.input[0] in known:
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


def with_known_inputs(op: Any, known: Mapping[str, Values]) -> tuple[list[str], Arguments]:
    """Return the inputs and the settings of an op, with what an input says as a setting where it is known."""
    settings, inputs = Arguments(op), list(op.input)
    place, name = _AS_SETTING.get(op.type, (0, ""))
    if name and len(inputs) == place + 1 and inputs[place] in known:
        return inputs[:place], settings.with_integers(name, known[inputs[place]])
    if op.type == "ConstantFill" and settings.integer("input_as_shape") and inputs and inputs[0] in known:
        return [], settings.with_integers("shape", known[inputs[0]])
    return inputs, settings
