"""The type of every blob after every op, as far as it can be told without running anything."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from lowtide.core.errors import GraphError
from lowtide.frameworks.caffe2.shapes.rules import RULES
from lowtide.frameworks.caffe2.shapes.tensor_type import TensorType
from lowtide.frameworks.caffe2.shapes.values import Values, with_known_inputs, written_values

_MOST_ELEMENTS = 2**59
OpTypes = Sequence["TensorType | None"]
"""The types of an op's outputs; None for those that are not known."""


def infer_types(net: Any, known: Mapping[str, TensorType]) -> list[OpTypes]:
    """Return per op the types of its outputs; `known` are those of the blobs that are there from the start.

    An op in place keeps what its input was where its kind has no rule. Raises GraphError for sizes no machine can hold.
    """
    types: dict[str, TensorType] = dict(known)
    values: dict[str, Values] = {}
    result: list[OpTypes] = []
    for position, op in enumerate(net.op):
        outputs = _outputs(op, types, values)
        written = written_values(op, [types.get(name) for name in op.input], values)
        for name in op.output:
            values.pop(name, None)
        values.update(written)
        result.append(outputs)
        for name, kind in zip(op.output, outputs, strict=True):
            if kind is None:
                types.pop(name, None)
            elif prod(kind.shape) > _MOST_ELEMENTS or min(kind.shape, default=0) < 0:
                raise GraphError(
                    f"op {position} ({op.type}): blob {name!r} of shape {list(kind.shape)} fits no machine"
                )
            else:
                types[name] = kind
    return result


def last_types(net: Any, known: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """Return the types of what the ops of a net leave behind; `known` and the errors are those of `infer_types`."""
    found: dict[str, TensorType] = {}
    for op, outputs in zip(net.op, infer_types(net, known), strict=True):
        found.update((name, kind) for name, kind in zip(op.output, outputs, strict=True) if kind is not None)
    return found


def _outputs(op: Any, types: Mapping[str, TensorType], values: Mapping[str, Values]) -> OpTypes:
    rule = RULES.get(op.type)
    names, settings = with_known_inputs(op, values)
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
