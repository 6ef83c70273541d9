"""Kinds of ops by their names in frameworks."""

_ATEN_POINTWISE = """
    abs acos acosh add addcdiv addcmul arange asin asinh atan atan2 atanh binary_cross_entropy_with_logits
    bitwise_and bitwise_not bitwise_or bitwise_xor ceil celu clamp clamp_max clamp_min clone
    convert_element_type copy cos cosh div elu elu_backward empty_like eq erf erfc exp exp2 expm1 fill floor
    floor_divide fmod full full_like ge gelu gelu_backward gt hardsigmoid hardsigmoid_backward hardswish
    hardswish_backward hardtanh hardtanh_backward isinf isnan le leaky_relu leaky_relu_backward lerp log log10
    log1p log2 log_sigmoid_forward logical_and logical_not logical_or logical_xor lt masked_fill maximum minimum
    mish mul native_dropout native_dropout_backward ne neg new_ones new_zeros ones ones_like pow reciprocal relu
    remainder round rsqrt rsub scalar_tensor sigmoid sigmoid_backward sign silu silu_backward sin sinh softplus
    softplus_backward sqrt square sub tan tanh tanh_backward threshold_backward trunc where zeros zeros_like
    _to_copy
"""
_ONNX_AND_TENSORFLOW_POINTWISE = """
    Abs AccumulateNV2 Add AddN AddV2 And BiasAdd Cast Ceil Celu Clip Cos Dequantize DequantizeLinear Div Dropout
    Elu EluGrad Equal Erf Exp Fill Floor FloorDiv FloorMod Gelu Greater GreaterEqual GreaterOrEqual HardSigmoid
    HardSwish Identity IsInf IsNaN LeakyRelu LeakyReluGrad Less LessEqual LessOrEqual Log Log1p LogicalAnd
    LogicalNot LogicalOr Maximum Minimum Mish Mod Mul Neg Not NotEqual OnesLike Or Pow PRelu QuantizeLinear
    RealDiv Reciprocal Relu Relu6 Relu6Grad ReluGrad Round Rsqrt RsqrtGrad Select SelectV2 Selu SeluGrad Sigmoid
    SigmoidGrad Sign Sin Softplus SoftplusGrad Softsign Sqrt SqrtGrad Square SquaredDifference Sub Tan Tanh
    TanhGrad ThresholdedRelu Where Xor ZerosLike
"""

POINTWISE = frozenset(_ATEN_POINTWISE.split() + _ONNX_AND_TENSORFLOW_POINTWISE.split())
"""Element-wise ops, which compilers fuse."""

MATRIX_PRODUCT = frozenset(
    {"addmm", "baddbmm", "bmm", "linear", "matmul", "mm", "mv"}
    | {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "FusedMatMul", "Gemm", "MatMul"}
)
"""Products of matrices or of batches."""

CONVOLUTION = frozenset({"conv1d", "conv2d", "conv3d", "convolution", "Conv", "Conv2D", "Conv3D"})
"""Convolutions that read (input, weight, optional bias)."""

CONVOLUTION_BACKWARD = frozenset({"convolution_backward"})
"""Gradients of convolutions that read (output gradient, input, weight)."""

NEVER_FUSED = MATRIX_PRODUCT | CONVOLUTION | CONVOLUTION_BACKWARD
"""Ops that read their operands from memory."""


def plain_kind(kind: str) -> str:
    """Return an op kind without framework and overload: "aten.add.Tensor" is "add"."""
    parts = kind.split(".")
    return parts[1] if len(parts) > 1 and parts[0] in ("aten", "prims") else parts[-1]
