"""Type rules by kind of op."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from lowtide.frameworks.caffe2.nets.arguments import Arguments
from lowtide.frameworks.caffe2.shapes.tensor_type import CAFFE2_TYPES, TensorType

Types = Sequence[TensorType]
Rule = Callable[[Types, Arguments, int], "list[TensorType] | None"]
"""From input types, arguments and the number of outputs to output types.

A rule returns None, or raises IndexError or ValueError, for cases that it does not cover.
"""


def _like(*inputs: int) -> Rule:
    return lambda types, _settings, n: [types[place] for place in inputs[:n]] if n <= len(inputs) else None


def _one(shape_of: Callable[[Types, Arguments], Sequence[int]]) -> Rule:
    return lambda types, settings, n: [types[0].with_shape(*shape_of(types, settings))] if n == 1 else None


def _binary(types: Types, settings: Arguments, n: int) -> list[TensorType] | None:
    one, other = types[0].shape, types[1].shape
    if n != 1:
        return None
    if settings.integer("broadcast") or (len(other) <= len(one) and settings.integer("axis", -1) >= 0):
        return [types[0]]
    rank = max(len(one), len(other))
    padded = [(1,) * (rank - len(shape)) + shape for shape in (one, other)]
    pairs = list(zip(*padded, strict=True))
    if any(a != b and 1 not in (a, b) for a, b in pairs):
        return None
    return [types[0].with_shape(*(b if a == 1 else a for a, b in pairs))]


def _matmul(types: Types, settings: Arguments, n: int) -> list[TensorType] | None:
    (rows, inner), (other, columns) = types[0].shape, types[1].shape
    if settings.integer("trans_a"):
        rows, inner = inner, rows
    if settings.integer("trans_b"):
        other, columns = columns, other
    return [types[0].with_shape(rows, columns)] if n == 1 and inner == other else None


def _conv_gradient(types: Types, settings: Arguments, n: int) -> list[TensorType] | None:
    x, w = types[0], types[1]
    grads = [w] if settings.integer("no_bias") else [w, w.with_shape(w.shape[0])]
    return [*grads, x][:n]


_LEGACY_CEIL = 3


@dataclass(frozen=True, slots=True)
class Window:
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    """Top, left, bottom, right."""
    dilation: tuple[int, int]
    rounds_up: bool
    """Whether the last window may cross the border, as in Caffe 1."""

    def output(self, height: int, width: int) -> tuple[int, int] | None:
        """Return the output's height and width, None if the window does not fit."""
        sizes: list[int] = []
        for axis, size in enumerate((height, width)):
            reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1
            room = size + self.pads[axis] + self.pads[axis + 2] - reach
            if room < 0 or self.stride[axis] < 1 or self.kernel[axis] < 1:
                return None
            steps = -(-room // self.stride[axis]) if self.rounds_up else room // self.stride[axis]
            if self.rounds_up and steps * self.stride[axis] >= size + self.pads[axis]:
                steps -= 1
            sizes.append(steps + 1)
        return sizes[0], sizes[1]


def window_of(settings: Arguments, height: int, width: int) -> Window:
    if settings.integer("global_pooling"):
        return Window((height, width), (1, 1), (0, 0, 0, 0), (1, 1), rounds_up=False)
    pads = settings.integers("pads")
    if len(pads) != 4:
        pad = settings.integer("pad")
        pads = [settings.integer(f"pad_{side}", pad) for side in "tlbr"]
    return Window(
        _pair(settings, "kernel", 1),
        _pair(settings, "stride", 1),
        (pads[0], pads[1], pads[2], pads[3]),
        _pair(settings, "dilation", 1),
        rounds_up=settings.integer("legacy_pad") == _LEGACY_CEIL,
    )


def _pair(settings: Arguments, name: str, default: int) -> tuple[int, int]:
    several = settings.integers(f"{name}s")
    if len(several) == 2:
        return several[0], several[1]
    one = settings.integer(name, default)
    return settings.integer(f"{name}_h", one), settings.integer(f"{name}_w", one)


def _pool(types: Types, settings: Arguments, n: int, channels: int | None = None) -> list[TensorType] | None:
    shape, is_last = types[0].shape, _is_channels_last(settings)
    batch, height, width, own = shape if is_last else (shape[0], *shape[2:], shape[1])
    size = window_of(settings, height, width).output(height, width)
    if size is None or n != 1:
        return None
    made = own if channels is None else channels
    return [types[0].with_shape(*((batch, *size, made) if is_last else (batch, made, *size)))]


def _conv(types: Types, settings: Arguments, n: int) -> list[TensorType] | None:
    return _pool(types, settings, n, types[1].shape[0])


def _is_channels_last(settings: Arguments) -> bool:
    return settings.text("order", "NCHW") == "NHWC"


def channel_axis(settings: Arguments, rank: int) -> int:
    default = rank - 1 if _is_channels_last(settings) else 1
    axis = settings.integer("axis", default)
    return axis + rank if axis < 0 else axis


def _concat(types: Types, settings: Arguments, n: int) -> list[TensorType] | None:
    first = types[0].shape
    if settings.integer("add_axis"):
        axis = settings.integer("axis")
        joined = (*first[:axis], len(types), *first[axis:])
    else:
        axis = channel_axis(settings, len(first))
        joined = (*first[:axis], sum(kind.shape[axis] for kind in types), *first[axis + 1 :])
    return [types[0].with_shape(*joined), TensorType((len(types),), "int32")][:n]


def split_sizes(size: int, settings: Arguments, n: int) -> list[int]:
    sizes = settings.integers("split")
    if not sizes and size % n == 0:
        sizes = [size // n] * n
    if len(sizes) != n or sum(sizes) != size:
        raise ValueError("the lengths do not add up")
    return sizes


def _split(types: Types, settings: Arguments, n: int) -> list[TensorType] | None:
    if len(types) != 1:
        return None
    shape = types[0].shape
    axis = channel_axis(settings, len(shape))
    sizes = split_sizes(shape[axis], settings, n)
    if settings.integer("add_axis"):
        return [types[0].with_shape(*shape[:axis], *shape[axis + 1 :])] * n if set(sizes) == {1} else None
    return [types[0].with_shape(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]


def reshaped(shape: Sequence[int], asked: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a Reshape: 0 keeps a size, -1 is computed; raises ValueError."""
    result = [shape[place] if size == 0 else size for place, size in enumerate(asked)]
    if -1 in result:
        known = prod(size for size in result if size != -1)
        result[result.index(-1)] = prod(shape) // known if known else 0
    if prod(result) != prod(shape) or min(result, default=0) < 0:
        raise ValueError("the number of elements changes")
    return tuple(result)


def _reshape(types: Types, settings: Arguments, n: int) -> list[TensorType] | None:
    if len(types) != 1 or "shape" not in settings:
        return None  # the shape is an unknown input
    shape = reshaped(types[0].shape, settings.integers("shape"))
    return [types[0].with_shape(*shape), TensorType((len(types[0].shape),), "int64")][:n]


def _shape(types: Types, settings: Arguments, n: int) -> list[TensorType] | None:
    return [TensorType((len(settings.integers("axes") or types[0].shape),), "int64")] if n == 1 else None


def _flatten(types: Types, settings: Arguments) -> tuple[int, int]:
    shape, axis = types[0].shape, settings.integer("axis", 1)
    return prod(shape[:axis]), prod(shape[axis:])


def _transpose(types: Types, settings: Arguments, n: int) -> list[TensorType] | None:
    shape = types[0].shape
    axes = settings.integers("axes") or list(reversed(range(len(shape))))
    if sorted(axes) != list(range(len(shape))):
        return None
    return [types[0].with_shape(*(shape[axis] for axis in axes))] if n == 1 else None


def _tile(types: Types, settings: Arguments, n: int) -> list[TensorType] | None:
    shape, axis = list(types[0].shape), settings.integer("axis")
    shape[axis] *= settings.integer("tiles", 1)
    return [types[0].with_shape(*shape)] if n == 1 and len(types) == 1 else None


def _fill(dtype: str) -> Rule:
    def rule(types: Types, settings: Arguments, n: int) -> list[TensorType] | None:
        kind = CAFFE2_TYPES.get(settings.integer("dtype"), dtype) if "dtype" in settings else dtype
        if types and (settings.integer("input_as_shape") or settings.integers("extra_shape")):
            return None
        shape = types[0].shape if types else tuple(settings.integers("shape"))
        return [TensorType(shape, kind)] if n == 1 else None

    return rule


def first_rows(shape: Sequence[int]) -> int:
    return shape[0] if len(shape) == 3 else 1


def _recurrent(types: Types, settings: Arguments, n: int) -> list[TensorType] | None:
    steps, batch = types[0].shape[:2]
    starts = dict(
        zip(settings.texts("recurrent_states"), settings.integers("initial_recurrent_state_ids"), strict=False)
    )
    outputs: list[TensorType] = []
    for state, offset in zip(settings.texts("alias_src"), settings.integers("alias_offset"), strict=True):
        begin = types[starts[state]].shape
        n_rows = steps + first_rows(begin)
        outputs.append(types[0].with_shape(-offset if offset < 0 else n_rows - offset, batch, begin[-1]))
    outputs.append(TensorType((0,), "uint8"))
    return outputs[:n] if n <= len(outputs) else None


def _recurrent_gradient(types: Types, settings: Arguments, n: int) -> list[TensorType] | None:
    first = len(settings.integers("outputs_with_grads"))
    like = [0, *settings.integers("param"), *settings.integers("initial_recurrent_state_ids")]
    return [types[first + place] for place in like] if n == len(like) else None


_SAME = (
    "Relu Sigmoid Tanh Softmax Copy Alias Exp Log Sqrt Negative Abs Sqr LeakyRelu Elu Clip Scale StopGradient Sum"
    " WeightedSum CopyCPUToGPU CopyGPUToCPU CopyFromCPUInput CopyToCPU CopyOnDeviceLike PRelu ChannelShuffle"
    " IndexFreeze ReluGradient SigmoidGradient TanhGradient SoftmaxGradient LabelCrossEntropyGradient LRNGradient"
    " AveragedLossGradient SumElementsGradient MaxPoolGradient AveragePoolGradient SoftmaxWithLossGradient"
)
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_SAME.split(), _like(0)),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _binary),
    **dict.fromkeys(("SumElements", "AveragedLoss"), _one(lambda _types, _settings: ())),
    **dict.fromkeys(("Conv", "ConvRelu"), _conv),
    **dict.fromkeys(("MaxPool", "AveragePool"), _pool),
    **dict.fromkeys(("XavierFill", "MSRAFill", "GaussianFill", "UniformFill", "GivenTensorFill"), _fill("float32")),
    **dict.fromkeys(("UniformIntFill", "GivenTensorIntFill"), _fill("int32")),
    "ConstantFill": _fill("float32"),
    "GivenTensorInt64Fill": _fill("int64"),
    "Dropout": lambda types, _settings, n: [types[0], TensorType(types[0].shape, "bool")][:n],
    "LRN": _like(0, 0),
    "LSTMUnit": _like(0, 1),
    "LSTMUnitGradient": _like(0, 1, 2),
    "SpatialBN": lambda types, _settings, n: [types[0], *[types[1]] * (n - 1)],
    "Accuracy": lambda types, _settings, n: [TensorType(())] if n == 1 else None,
    "FC": _one(lambda types, settings: (*types[0].shape[: settings.integer("axis", 1)], types[1].shape[0])),
    "FCGradient": lambda types, _settings, n: [types[1], types[1].with_shape(types[1].shape[0]), types[0]][:n],
    "MatMul": _matmul,
    **dict.fromkeys(("AddGradient", "SubGradient", "MulGradient"), lambda types, _settings, n: list(types[1 : 1 + n])),
    "ConvGradient": _conv_gradient,
    "LabelCrossEntropy": _one(lambda types, _settings: (types[0].shape[0],)),
    "SoftmaxWithLoss": lambda types, _settings, n: [types[0], types[0].with_shape()][:n],
    "Concat": _concat,
    "DepthConcat": _concat,
    "Split": _split,
    "Reshape": _reshape,
    "Shape": _shape,
    "Flatten": _one(_flatten),
    "Transpose": _transpose,
    "Tile": _tile,
    "RecurrentNetwork": _recurrent,
    "RecurrentNetworkGradient": _recurrent_gradient,
}
