"""Rules: the input axes along which a chunk of a result is computed, exact in real numbers."""

import math
from collections.abc import Callable, Mapping, Sequence

from onnx import NodeProto

from lowtide.frameworks.onnx.chunks.values import MainValues
from lowtide.frameworks.onnx.operators.nodes import attribute_of, int_of, ints_of, operator_of
from lowtide.frameworks.onnx.operators.tables import VIEWS, Operator, named

_SINCE_SOFTMAX_ALONG_ONE_AXIS = 13

Axes = Sequence[int | None]
"""By input, the cut axis, or None if all is read."""


def axes_read(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
    """Return each input's cut axis for results cut along `axis`; None if impossible or unknown."""
    rule = _RULES.get(operator_of(node))
    if rule is None or any(attribute.HasField("t") or attribute.HasField("g") for attribute in node.attribute):
        return None
    shapes = [known.shape(name) for name in (*node.input, *node.output) if name]
    if any(shape is None or 0 in shape for shape in shapes):
        return None
    return rule(node, axis, known)


def _shape(known: MainValues, name: str) -> Sequence[int]:
    return known.shape(name) or ()


def _result(node: NodeProto, known: MainValues) -> Sequence[int]:
    return _shape(known, node.output[0])


def _first(axis: int, node: NodeProto) -> Axes:
    return [axis, *[None] * (len(node.input) - 1)]


def _operands(names: Sequence[str], axis: int, node: NodeProto, known: MainValues) -> Axes:
    rank = len(_result(node, known))
    shapes = [_shape(known, name) if name else () for name in names]
    own = [axis - (rank - len(shape)) for shape in shapes]
    return [at if at >= 0 and shape[at] != 1 else None for at, shape in zip(own, shapes, strict=True)]


def _broadcast(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
    return _operands(node.input, axis, node, known)


def _quantized(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
    rank = len(_result(node, known))
    per_axis = any(_shape(known, name) not in ([], [1]) for name in node.input[1:] if name)
    is_varying = per_axis and (int_of(node, "axis", 1) % rank == axis or int_of(node, "block_size"))
    return None if is_varying else _first(axis, node)


def _softmax(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
    rank = len(_result(node, known))
    if known.opset < _SINCE_SOFTMAX_ALONG_ONE_AXIS:
        return [axis] if axis < int_of(node, "axis", 1) % rank else None
    return [axis] if axis != int_of(node, "axis", -1) % rank else None


def _normalized(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
    rank = len(_shape(known, node.input[0]))
    return _first(axis, node) if axis < int_of(node, "axis", -1) % rank else None


def _added_and_normalized(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
    shape = _shape(known, node.input[0])
    if axis >= len(shape) - 1 or _shape(known, node.input[1]) != shape or any(node.output[1:3]):
        return None
    return [axis, axis, *[None] * (len(node.input) - 2)]


def _reduced(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
    rank = len(_shape(known, node.input[0]))
    if node.op_type in ("ArgMax", "ArgMin"):
        given: list[int] | None = [int_of(node, "axis", 0)]
    elif len(node.input) > 1 and node.input[1]:
        given = known.numbers(node.input[1])
    else:
        given = ints_of(node, "axes")
    if not given:  # all axes, or unknown ones
        return None
    gone = {number % rank for number in given}
    kept = [number for number in range(rank) if int_of(node, "keepdims", 1) or number not in gone]
    source = kept[axis]
    return None if source in gone else _first(source, node)


def _along_one_axis(default: int) -> "Rule":
    def rule(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
        rank = len(_shape(known, node.input[0]))
        return None if axis == int_of(node, "axis", default) % rank else _first(axis, node)

    return rule


def _joined(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
    rank = len(_result(node, known))
    return None if axis == int_of(node, "axis", 0) % rank else [axis] * len(node.input)


def _sliced(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
    rank = len(_result(node, known))
    named = known.numbers(node.input[3]) if len(node.input) > 3 and node.input[3] else None
    return None if named is None or axis in {number % rank for number in named} else _first(axis, node)


def _gathered(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
    data, indices = (len(_shape(known, name)) for name in node.input)
    along = int_of(node, "axis", 0) % data
    if axis < along:
        return [axis, None]
    return [None, axis - along] if axis < along + indices else [axis - indices + 1, None]


def _transposed(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
    order = ints_of(node, "perm") or range(len(_result(node, known)))[::-1]
    return [order[axis]]


def _viewed(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
    """Chunks must be ranges of storage."""
    before, after = _shape(known, node.input[0]), _result(node, known)
    wanted = math.prod(after[:axis])
    found = [own for own, size in enumerate(before) if math.prod(before[:own]) == wanted and size > 1]
    return _first(found[0], node) if found else None


def _multiplied(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
    one, other = (_shape(known, name) for name in node.input[:2])
    rank = len(_result(node, known))
    if len(one) < 2 or len(other) < 2 or axis == rank - 1 or int_of(node, "transBatchA") or int_of(node, "transBatchB"):
        return None
    if axis == rank - 2:
        return [len(one) - (1 if int_of(node, "transA") else 2), None]
    return _operands(node.input[:2], axis, node, known)


def _affine(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
    added = _operands(node.input[2:], 0, node, known)
    return None if axis else [1 if int_of(node, "transA") else 0, None, *added]


def _per_image(*images: int) -> "Rule":
    """Further results need the whole batch."""

    def rule(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
        if axis or any(node.output[1:]) or int_of(node, "training_mode"):
            return None
        return [0 if place in images and name else None for place, name in enumerate(node.input)]

    return rule


def _resized(node: NodeProto, axis: int, known: MainValues) -> Axes | None:
    """Sizes, unlike scales, include the batch."""
    has_sizes = len(node.input) > 3 and bool(node.input[3])
    return None if axis or has_sizes or attribute_of(node, "axes") else _first(0, node)


Rule = Callable[[NodeProto, int, MainValues], Axes | None]


_ELEMENT_WISE = """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Celu Clip
    Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN
    LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink
    Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Tan Tanh ThresholdedRelu Where Xor
"""
_REDUCED = """
    ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare
"""
_POOLED = "MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool"
_IMAGES = f"Conv ConvTranspose BatchNormalization InstanceNormalization LRN DepthToSpace SpaceToDepth {_POOLED}"

_RULES: Mapping[Operator, Rule] = {
    **dict.fromkeys(named(_ELEMENT_WISE), _broadcast),
    **dict.fromkeys(named("Gelu QuickGelu FastGelu BiasGelu", "com.microsoft"), _broadcast),
    **dict.fromkeys(named("QuantizeLinear DequantizeLinear"), _quantized),
    **dict.fromkeys(named("Softmax LogSoftmax Hardmax"), _softmax),
    **dict.fromkeys(named("LayerNormalization RMSNormalization SimplifiedLayerNormalization"), _normalized),
    **dict.fromkeys(
        named("SkipLayerNormalization SkipSimplifiedLayerNormalization", "com.microsoft"), _added_and_normalized
    ),
    **dict.fromkeys(named(_REDUCED), _reduced),
    **dict.fromkeys(named("TopK"), _along_one_axis(-1)),
    **dict.fromkeys(named("Split"), _along_one_axis(0)),
    **dict.fromkeys(named("Concat GatherElements"), _joined),
    **dict.fromkeys(named("Slice"), _sliced),
    **dict.fromkeys(named("Gather"), _gathered),
    **dict.fromkeys(named("Transpose"), _transposed),
    **dict.fromkeys(VIEWS - {("", "Identity")}, _viewed),
    **dict.fromkeys(named("MatMul"), _multiplied),
    **dict.fromkeys(named("FusedMatMul", "com.microsoft"), _multiplied),
    **dict.fromkeys(named("Gemm"), _affine),
    **dict.fromkeys(named("FusedGemm", "com.microsoft"), _affine),
    **dict.fromkeys(named(_IMAGES), _per_image(0)),
    **dict.fromkeys(named("FusedConv", "com.microsoft"), _per_image(0, 3)),
    **dict.fromkeys(named("Conv", "com.microsoft.nchwc"), _per_image(0, 3)),
    **dict.fromkeys(named(f"{_POOLED} ReorderInput ReorderOutput Upsample", "com.microsoft.nchwc"), _per_image(0)),
    **dict.fromkeys(named("Resize"), _resized),
}
