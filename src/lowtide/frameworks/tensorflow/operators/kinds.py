"""Kinds of ops by what they do to memory; data."""

VARIABLES = frozenset({"AutoReloadVariable", "VarHandleOp", "Variable", "VariableV2", "_VarHandlesOp"})
"""What names a variable, which is there before the graph runs and stays."""

CONSTANTS = frozenset({"Const", "HostConst"})
PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2", "_Arg", "_DeviceArg"})

VIEWS = frozenset(
    {"Bitcast", "CheckNumerics", "EnsureShape", "ExpandDims", "Identity", "IdentityN", "PlaceholderWithDefault"}
    | {"PreventGradient", "ReadVariableOp", "RefIdentity", "Reshape", "Squeeze", "StopGradient", "_ReadVariablesOp"}
    | {"_RetVal", "_Retval", "_DeviceRetval"}
)
"""Ops whose results are their inputs under another name: the kernels hand on the same storage."""

BARRIERS = frozenset({"IdentityN"})
"""Views that show nothing before all their inputs are there."""

ALL_PORTS = BARRIERS | {"_ReadVariablesOp"}
"""Views that hand on every input and not only the first."""

READS_OF_RESOURCES = frozenset(
    {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape", "_ReadVariablesOp"}
    | {"IsVariableInitialized", "LookupTableFindV2", "LookupTableSizeV2", "ResourceStridedSlice"}
)
"""Ops with a resource that they leave as it is."""

ELEMENTWISE = frozenset(
    {"Abs", "Add", "AddV2", "BiasAdd", "Ceil", "Cos", "Div", "DivNoNan", "Elu", "EluGrad", "Erf", "Exp", "Expm1"}
    | {"Floor", "FloorDiv", "FloorMod", "Inv", "InvGrad", "LeakyRelu", "LeakyReluGrad", "Log", "Log1p", "LogSoftmax"}
    | {"Maximum", "Minimum", "Mul", "MulNoNan", "Neg", "Pow", "RealDiv", "Reciprocal", "ReciprocalGrad", "Relu"}
    | {"Relu6", "Relu6Grad", "ReluGrad", "Rint", "Round", "Rsqrt", "RsqrtGrad", "Selu", "SeluGrad", "Sigmoid"}
    | {"SigmoidGrad", "Sign", "Sin", "Softmax", "Softplus", "SoftplusGrad", "Softsign", "SoftsignGrad", "Sqrt"}
    | {"SqrtGrad", "Square", "SquaredDifference", "Sub", "Tan", "Tanh", "TanhGrad", "Xdivy", "Xlogy"}
)
"""Ops whose kernels write over an input of the same size that nobody else needs."""

INLINE = (
    CONSTANTS
    | PLACEHOLDERS
    | VARIABLES
    | {
        "BroadcastGradientArgs",
        "ConcatOffset",
        "ExpandDims",
        "Identity",
        "IdentityN",
        "NoOp",
        "PreventGradient",
        "Rank",
    }
    | {"ReadVariableOp", "Reshape", "Shape", "ShapeN", "Size", "Squeeze", "StopGradient"}
)
"""Ops whose kernels TensorFlow's executor takes for cheap: they run where they become ready."""

FILTER_GRADIENT, BIAS_GRADIENT = "Conv2DBackpropFilter", "BiasAddGrad"
"""What oneDNN computes at once."""

SEEDED = frozenset(
    {"Multinomial", "ParameterizedTruncatedNormal", "RandomCrop", "RandomGamma", "RandomPoisson", "RandomPoissonV2"}
    | {"RandomShuffle", "RandomStandardNormal", "RandomUniform", "RandomUniformInt", "TruncatedNormal"}
)
"""Ops that draw other numbers in every session, unless they have a seed."""

COPY_OUT, COPY_BACK = "_CopyFromGpuToHost", "_CopyFromHostToGpu"
"""What swaps are made of; only a TensorFlow built for GPUs has them."""

CONTROL_FLOW_V1 = frozenset(
    {"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch", "_SwitchN"}
    | {"RefEnter", "RefExit", "RefMerge", "RefNextIteration", "RefSwitch"}
)
"""Ops of which only some run, or run several times, within one graph."""

LOOPS = frozenset({"StatelessWhile", "While"})
BRANCHES = frozenset({"Case", "If", "StatelessCase", "StatelessIf"})
CALLS = frozenset({"PartitionedCall", "RemoteCall", "StatefulPartitionedCall", "SymbolicGradient"})
CALLING = LOOPS | BRANCHES | CALLS

FUNCTION_ATTRIBUTES = ("f", "body", "cond", "then_branch", "else_branch", "branches")
"""Where nodes name the functions that they call."""

BYTES_OF_TYPES = {
    **dict.fromkeys((4, 6, 10, 11, 12, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33), 1),
    **dict.fromkeys((5, 14, 15, 16, 17, 19), 2),
    **dict.fromkeys((1, 3, 13, 22), 4),
    **dict.fromkeys((2, 8, 9, 23), 8),
    18: 16,
    7: 24,
}
"""Bytes of one element by the number of its data type; a text counts as what stands for it in a tensor."""
