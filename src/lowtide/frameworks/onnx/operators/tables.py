"""Memory behavior of ONNX operators, by (domain, operator).

Source: allocations of ONNX Runtime 1.31 on the CPU, which a test repeats.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

Operator = tuple[str, str]


def named(names: str, domain: str = "") -> frozenset[Operator]:
    return frozenset((domain, name) for name in names.split())


VIEWS = named("Identity Reshape Flatten Squeeze Unsqueeze")
"""Output 0 shares input 0's storage; only graph outputs are copied."""

METADATA = named("Shape Size")
"""Read shapes, not data; ONNX Runtime runs them first among ready nodes."""

CONSTANTS = named("Constant")

_ELEMENT_WISE = """
    BitCast Cast Celu Clip Elu HardSigmoid LeakyRelu LogSoftmax Relu Scatter ScatterElements Selu Shrink Sigmoid Softmax
    Softplus Softsign Tanh TensorScatter ThresholdedRelu Trilu
"""
IN_PLACE: Mapping[Operator, tuple[tuple[int, int], ...]] = {
    **dict.fromkeys(named(_ELEMENT_WISE) | named("SampleOp Trilu", "com.microsoft"), ((0, 0),)),
    ("com.microsoft", "FusedConv"): ((3, 0),),
    ("com.microsoft.nchwc", "Conv"): ((3, 0),),
}
"""Pairs (input, output): the output may use a dying input's storage if sizes match."""

_IN_PLACE_SINCE_1_24: Operator = ("com.microsoft", "FusedConv")


def in_place_pairs(operator: Operator) -> tuple[tuple[int, int], ...]:
    """Return the pairs of the installed ONNX Runtime, else of the newest."""
    return () if operator == _IN_PLACE_SINCE_1_24 and _is_before_1_24() else IN_PLACE.get(operator, ())


@cache
def _is_before_1_24() -> bool:
    try:
        return version("onnxruntime").startswith(("1.20.", "1.21.", "1.22.", "1.23."))
    except PackageNotFoundError:
        return False


BLOCKED_DOMAIN = "com.microsoft.nchwc"
"""Operators on blocks of channels, sized by the processor."""

FROM_BLOCKED: Operator = (BLOCKED_DOMAIN, "ReorderOutput")
"""Leaves the blocked layout of convolutions."""

RANDOM = named("Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike") | named(
    "BiasDropout BitmaskBiasDropout BitmaskDropout Sampling", "com.microsoft"
)
"""Draw random numbers; Dropout does in training mode."""

KNOWN_DOMAINS: frozenset[str] = frozenset(
    {"", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft", "com.microsoft.nchwc"}
)
"""Operators of other domains may have any effect."""

_EXPANDED = """
    Bernoulli CastLike CausalConvWithState CenterCropPad GroupNormalization HardSwish LinearAttention Mish
    NegativeLogLikelihoodLoss SequenceMap SoftmaxCrossEntropyLoss SwiGLU Swish
"""
EXPANDED = named(_EXPANDED) | named("FlexAttention", "ai.onnx.preview")
"""Without a kernel: ONNX Runtime expands them on loading and runs the new nodes last."""

_NOT_MODELED = """
    CausalConvWithState CenterCropPad ConvInteger DFT DeformConv Einsum GroupNormalization LinearAttention
    MeanVarianceNormalization NegativeLogLikelihoodLoss QLinearConv Resize SoftmaxCrossEntropyLoss
"""
WORKSPACE_NOT_MODELED = named(_NOT_MODELED)
"""Their workspaces depend on algorithm, threads or instruction set."""

_HALF = """
    Attention BitCast Cast CastLike Celu Clip Compress Concat ConcatFromSequence Constant ConstantOfShape
    DequantizeLinear Dropout Expand Flatten Gather GatherElements GatherND Identity If IsInf IsNaN LayerNormalization
    Loop Max Min Mod Optional OptionalGetElement OptionalHasElement QuantizeLinear RMSNormalization RandomNormalLike
    RandomUniformLike Reshape ReverseSequence RotaryEmbedding Round Scan Scatter ScatterElements ScatterND SequenceAt
    SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength Shape Shrink Sign Size Slice Split
    SplitToSequence Squeeze TensorScatter Transpose Unsqueeze
"""
HALF_KERNELS = named(_HALF)
"""Standard operators that take float16. On loading, ONNX Runtime adds casts to float32 around most others."""

_KNOWN = """
    BiasGelu CDist DequantizeLinear DynamicQuantizeMatMul ExpandDims FastGelu FusedConv FusedGemm FusedMatMul GatherND
    Gelu Inverse MatMulIntegerToFloat Pad QGemm QLinearAdd QLinearConcat QLinearGlobalAveragePool QLinearLeakyRelu
    QLinearMul QLinearSigmoid QLinearSoftmax QuantizeLinear QuickGelu RotaryEmbedding SampleOp SkipLayerNormalization
    SkipSimplifiedLayerNormalization TransposeMatMul Trilu
"""
WORKSPACE_KNOWN = named(_KNOWN, "com.microsoft")
"""Operators with no workspace or a modeled one."""

_SAME_SHAPE = """
    BiasGelu FastGelu Gelu QLinearLeakyRelu QLinearSigmoid QLinearSoftmax QuickGelu SkipLayerNormalization
    SkipSimplifiedLayerNormalization
"""
SAME_SHAPE = named(_SAME_SHAPE, "com.microsoft")
"""Output 0 has the type of input 0."""

STAND_INS: Mapping[Operator, tuple[str, int]] = {
    ("com.microsoft", "FusedConv"): ("Conv", 3),
    ("com.microsoft", "FusedGemm"): ("Gemm", 3),
    ("com.microsoft.nchwc", "Conv"): ("Conv", 3),
    ("com.microsoft.nchwc", "MaxPool"): ("MaxPool", 1),
    ("com.microsoft.nchwc", "AveragePool"): ("AveragePool", 1),
    ("com.microsoft.nchwc", "GlobalMaxPool"): ("GlobalMaxPool", 1),
    ("com.microsoft.nchwc", "GlobalAveragePool"): ("GlobalAveragePool", 1),
}
"""A standard operator with the same output shape, and its number of inputs."""
