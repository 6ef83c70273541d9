"""What ONNX operators do to memory, as data.

Keys are (domain, operator); the default domain is "". The aliases, the in-place pairs and the workspaces were measured
by counting allocations in ONNX Runtime 1.31 on the CPU, operator by operator; a test repeats the measurement.
"""

from collections.abc import Mapping

Operator = tuple[str, str]

VIEWS: frozenset[Operator] = frozenset(
    ("", name) for name in ("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
)
"""Output 0 is input 0's storage under another shape; only an output of the graph itself is copied."""

METADATA: frozenset[Operator] = frozenset({("", "Shape"), ("", "Size")})
"""Read a shape and no data; ONNX Runtime runs them before anything else that is ready."""

CONSTANTS: frozenset[Operator] = frozenset({("", "Constant")})
"""Become weights when the model is loaded; nothing runs."""

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
"""Pairs (input, output): the output may take over the storage of an input that dies and has the same size."""

FROM_BLOCKED: Operator = ("com.microsoft.nchwc", "ReorderOutput")
"""Goes back from the blocked layout of convolutions."""

RANDOM: frozenset[Operator] = frozenset(
    {
        *(("", name) for name in ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")),
        *(("", name) for name in ("Bernoulli", "Multinomial")),
        *(("com.microsoft", name) for name in ("BiasDropout", "BitmaskDropout", "BitmaskBiasDropout", "Sampling")),
    }
)
"""Draw random numbers; Dropout does too, but only in training mode."""

KNOWN_DOMAINS: frozenset[str] = frozenset(
    {"", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft", "com.microsoft.nchwc"}
)
"""Operators elsewhere are opaque: they may do anything, so they keep their order."""

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
"""Have no kernel of their own: ONNX Runtime expands them into several nodes when it loads a model. It runs those after
all others that are ready, so measuring expands them first, in place."""

WORKSPACE_NOT_MODELED: frozenset[Operator] = frozenset(
    {
        *(("", name) for name in ("DeformConv", "Einsum")),
        *(
            ("", name)
            for name in (
                "Resize",
                "DFT",
                "QLinearConv",
                "ConvInteger",
                "MeanVarianceNormalization",
            )
        ),
        *(("", name) for name in ("GroupNormalization", "CenterCropPad", "LinearAttention", "CausalConvWithState")),
        *(("", name) for name in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")),
    }
)
"""Kernels that allocate a workspace whose size depends on their algorithm, the threads and the instruction set."""

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
"""Operators of ONNX Runtime's own whose kernels have no workspace, or one that is counted; of others none is known."""

SAME_SHAPE: frozenset[Operator] = frozenset(
    {
        *(("com.microsoft", name) for name in ("Gelu", "QuickGelu", "FastGelu", "BiasGelu")),
        *(("com.microsoft", name) for name in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")),
        *(("com.microsoft", name) for name in ("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax")),
    }
)
"""Operators of ONNX Runtime's own whose first output has the shape and type of the first input."""

STAND_INS: Mapping[Operator, tuple[str, int]] = {
    ("com.microsoft", "FusedConv"): ("Conv", 3),
    ("com.microsoft", "FusedGemm"): ("Gemm", 3),
    ("com.microsoft.nchwc", "Conv"): ("Conv", 3),
    ("com.microsoft.nchwc", "MaxPool"): ("MaxPool", 1),
    ("com.microsoft.nchwc", "AveragePool"): ("AveragePool", 1),
    ("com.microsoft.nchwc", "GlobalMaxPool"): ("GlobalMaxPool", 1),
    ("com.microsoft.nchwc", "GlobalAveragePool"): ("GlobalAveragePool", 1),
}
"""Operators of ONNX Runtime's own: a standard one whose first output has the same shape, and its number of inputs."""
