"""Memory behavior of ONNX operators, as data.

Keys are (domain, operator). Views, in-place pairs and workspaces were measured by counting allocations in ONNX Runtime
1.31 on the CPU; a test repeats it.
"""

from collections.abc import Mapping

Operator = tuple[str, str]

VIEWS: frozenset[Operator] = frozenset(
    ("", name) for name in ("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
)
"""Output 0 shares input 0's storage; only graph outputs are copied."""

METADATA: frozenset[Operator] = frozenset({("", "Shape"), ("", "Size")})
"""Read shapes, not data; ONNX Runtime runs them first among ready nodes."""

CONSTANTS: frozenset[Operator] = frozenset({("", "Constant")})
"""Become weights on loading."""

IN_PLACE: Mapping[Operator, tuple[tuple[int, int], ...]] = {
    **{
        ("", name): ((0, 0),)
        for name in (
            *("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "ThresholdedRelu", "Shrink", "Clip"),
            *("Sigmoid", "HardSigmoid", "Tanh", "Softplus", "Softsign", "Softmax", "LogSoftmax"),
            *("Cast", "BitCast", "Trilu", "Scatter", "ScatterElements", "TensorScatter"),
        )
    },
    ("com.microsoft", "Trilu"): ((0, 0),),
    ("com.microsoft", "SampleOp"): ((0, 0),),
    ("com.microsoft", "FusedConv"): ((3, 0),),
    ("com.microsoft.nchwc", "Conv"): ((3, 0),),
}
"""Pairs (input, output): the output may use a dying input's storage if sizes match."""

FROM_BLOCKED: Operator = ("com.microsoft.nchwc", "ReorderOutput")
"""Leaves the blocked layout of convolutions."""

RANDOM: frozenset[Operator] = frozenset(
    {
        *(("", name) for name in ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")),
        *(("", name) for name in ("Bernoulli", "Multinomial")),
        *(("com.microsoft", name) for name in ("BiasDropout", "BitmaskDropout", "BitmaskBiasDropout", "Sampling")),
    }
)
"""Draw random numbers; Dropout does in training mode."""

KNOWN_DOMAINS: frozenset[str] = frozenset(
    {"", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft", "com.microsoft.nchwc"}
)
"""Operators of other domains are opaque: they may have any effect."""

EXPANDED: frozenset[Operator] = frozenset(
    {
        *(
            ("", name)
            for name in ("Bernoulli", "CastLike", "CausalConvWithState", "CenterCropPad", "GroupNormalization")
        ),
        *(("", name) for name in ("HardSwish", "LinearAttention", "Mish", "NegativeLogLikelihoodLoss", "SequenceMap")),
        *(("", name) for name in ("SoftmaxCrossEntropyLoss", "SwiGLU", "Swish")),
        ("ai.onnx.preview", "FlexAttention"),
    }
)
"""Have no kernel. ONNX Runtime expands them on loading and runs the new nodes last, so measuring expands them first."""

WORKSPACE_NOT_MODELED: frozenset[Operator] = frozenset(
    {
        *(("", name) for name in ("DeformConv", "Einsum")),
        *(("", name) for name in ("Resize", "DFT", "QLinearConv", "ConvInteger", "MeanVarianceNormalization")),
        *(("", name) for name in ("GroupNormalization", "CenterCropPad", "LinearAttention", "CausalConvWithState")),
        *(("", name) for name in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")),
    }
)
"""Workspaces that depend on algorithm, threads or instruction set."""

WORKSPACE_KNOWN: frozenset[Operator] = frozenset(
    ("com.microsoft", name)
    for name in (
        *("Gelu", "QuickGelu", "FastGelu", "BiasGelu", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
        *("FusedConv", "FusedGemm", "FusedMatMul", "TransposeMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"),
        *("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", "QLinearConcat"),
        *("QLinearGlobalAveragePool", "QGemm", "QuantizeLinear", "DequantizeLinear"),
        *("RotaryEmbedding", "Trilu", "SampleOp", "GatherND", "Pad", "ExpandDims", "Inverse", "CDist"),
    )
)
"""Operators of ONNX Runtime with no or a modeled workspace."""

SAME_SHAPE: frozenset[Operator] = frozenset(
    {
        *(("com.microsoft", name) for name in ("Gelu", "QuickGelu", "FastGelu", "BiasGelu")),
        *(("com.microsoft", name) for name in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")),
        *(("com.microsoft", name) for name in ("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax")),
    }
)
"""Operators of ONNX Runtime whose output 0 has the type of input 0."""

STAND_INS: Mapping[Operator, tuple[str, int]] = {
    ("com.microsoft", "FusedConv"): ("Conv", 3),
    ("com.microsoft", "FusedGemm"): ("Gemm", 3),
    ("com.microsoft.nchwc", "Conv"): ("Conv", 3),
    ("com.microsoft.nchwc", "MaxPool"): ("MaxPool", 1),
    ("com.microsoft.nchwc", "AveragePool"): ("AveragePool", 1),
    ("com.microsoft.nchwc", "GlobalMaxPool"): ("GlobalMaxPool", 1),
    ("com.microsoft.nchwc", "GlobalAveragePool"): ("GlobalAveragePool", 1),
}
"""Operators of ONNX Runtime: a standard one with the same output shape, and its number of inputs."""
