"""What kinds of ops do beside computing: which may overwrite an input, which draw random numbers or are unknown."""

from collections.abc import Mapping
from typing import Any

from lowtide.frameworks.caffe2.nets.arguments import Arguments
from lowtide.frameworks.caffe2.shapes.rules import RULES

FREE = "Free"
IN_PLACE: Mapping[str, tuple[tuple[int, int], ...]] = {
    **dict.fromkeys(
        ("Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Negative", "Sqr", "LeakyRelu", "Elu"), ((0, 0),)
    ),
    **dict.fromkeys(("Clip", "Scale", "StopGradient", "Reshape", "Sum", "Div"), ((0, 0),)),
    **dict.fromkeys(("Add", "Sub", "Mul"), ((0, 0), (1, 0))),
    **dict.fromkeys(("ReluGradient", "SigmoidGradient", "TanhGradient"), ((1, 0),)),
}
"""(input, output) pairs of kinds of ops whose kernels may write over an input, as Caffe2's schemas allow it.

MulGradient is not among them: its kernel gives wrong gradients in place."""
_RANDOM = frozenset(("XavierFill", "MSRAFill", "GaussianFill", "UniformFill", "UniformIntFill"))
_MUTATES_STATE = frozenset(("SpatialBN", "IndexFreeze"))


def may_write_over(op: Any) -> tuple[tuple[int, int], ...]:
    """Return the (input, output) pairs that an op may use in place."""
    return IN_PLACE.get(op.type, ())


def is_fixed(op: Any) -> bool:
    """Whether an op must neither run twice nor change places with its like: random, of unknown kind, with a state."""
    if op.type == "Dropout":
        return not Arguments(op).integer("is_test")
    return op.type in _RANDOM or op.type in _MUTATES_STATE or is_unknown(op)


def is_unknown(op: Any) -> bool:
    """Whether nothing is known of a kind of op."""
    return op.type not in RULES and op.type != FREE
