"""Op kinds by their effect on memory."""

VARIABLES = frozenset({"AutoReloadVariable", "VarHandleOp", "Variable", "VariableV2", "_VarHandlesOp"})
"""Ops that name a variable, which persists."""

CONSTANTS = frozenset({"Const", "HostConst"})
PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2", "_Arg", "_DeviceArg"})

SOURCES = CONSTANTS | PLACEHOLDERS | VARIABLES

VIEWS = frozenset(
    {"Bitcast", "CheckNumerics", "EnsureShape", "ExpandDims", "Identity", "IdentityN", "PlaceholderWithDefault"}
    | {"PreventGradient", "ReadVariableOp", "RefIdentity", "Reshape", "Squeeze", "StopGradient", "_ReadVariablesOp"}
    | {"_RetVal", "_Retval", "_DeviceRetval"}
)
"""Ops that return their input's storage."""

BARRIERS = frozenset({"IdentityN"})
"""Views that wait for all their inputs."""

ALL_PORTS = BARRIERS | {"_ReadVariablesOp"}
"""Views of every input, not only of the first."""

READS_OF_RESOURCES = frozenset(
    {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape", "_ReadVariablesOp"}
    | {"IsVariableInitialized", "LookupTableFindV2", "LookupTableSizeV2", "ResourceStridedSlice"}
)
"""Ops that read a resource without changing it."""

ELEMENTWISE = frozenset(
    {"Abs", "Add", "AddV2", "BiasAdd", "Ceil", "Cos", "Div", "DivNoNan", "Elu", "EluGrad", "Erf", "Exp", "Expm1"}
    | {"Floor", "FloorDiv", "FloorMod", "Inv", "InvGrad", "LeakyRelu", "LeakyReluGrad", "Log", "Log1p", "LogSoftmax"}
    | {"Maximum", "Minimum", "Mul", "MulNoNan", "Neg", "Pow", "RealDiv", "Reciprocal", "ReciprocalGrad", "Relu"}
    | {"Relu6", "Relu6Grad", "ReluGrad", "Rint", "Round", "Rsqrt", "RsqrtGrad", "Selu", "SeluGrad", "Sigmoid"}
    | {"SigmoidGrad", "Sign", "Sin", "Softmax", "Softplus", "SoftplusGrad", "Softsign", "SoftsignGrad", "Sqrt"}
    | {"SqrtGrad", "Square", "SquaredDifference", "Sub", "Tan", "Tanh", "TanhGrad", "Xdivy", "Xlogy"}
)
"""Ops that may run in place on an input of the same size."""

INLINE = (
    SOURCES
    | {"BroadcastGradientArgs", "ConcatOffset", "ExpandDims", "Identity", "IdentityN", "NoOp", "PreventGradient"}
    | {"Rank", "ReadVariableOp", "Reshape", "Shape", "ShapeN", "Size", "Squeeze", "StopGradient"}
)
"""Cheap ops, which TensorFlow's executor runs as soon as they are ready."""

FILTER_GRADIENT, BIAS_GRADIENT = "Conv2DBackpropFilter", "BiasAddGrad"
"""Ops that oneDNN fuses."""

SEEDED = frozenset(
    {"Multinomial", "ParameterizedTruncatedNormal", "RandomCrop", "RandomGamma", "RandomPoisson", "RandomPoissonV2"}
    | {"RandomShuffle", "RandomStandardNormal", "RandomUniform", "RandomUniformInt", "TruncatedNormal"}
)
"""Random ops, which differ between sessions without a seed."""

COPY_OUT, COPY_BACK = "_CopyFromGpuToHost", "_CopyFromHostToGpu"
"""The ops of a swap, which exist only in TensorFlow for GPUs."""

CONTROL_FLOW_V1 = frozenset(
    {"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch", "_SwitchN"}
    | {"RefEnter", "RefExit", "RefMerge", "RefNextIteration", "RefSwitch"}
)
"""Ops that make others run never or repeatedly."""

LOOPS = frozenset({"StatelessWhile", "While"})
BRANCHES = frozenset({"Case", "If", "StatelessCase", "StatelessIf"})
CALLS = frozenset({"PartitionedCall", "RemoteCall", "StatefulPartitionedCall", "SymbolicGradient"})
CALLING = LOOPS | BRANCHES | CALLS

FUNCTION_ATTRIBUTES = ("f", "body", "cond", "then_branch", "else_branch", "branches")
"""Attributes that name the functions a node calls."""

BYTES_OF_TYPES = {
    **dict.fromkeys((4, 6, 10, 11, 12, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33), 1),
    **dict.fromkeys((5, 14, 15, 16, 17, 19), 2),
    **dict.fromkeys((1, 3, 13, 22), 4),
    **dict.fromkeys((2, 8, 9, 23), 8),
    18: 16,
    7: 24,
}
"""Bytes of one element by data type; for texts, of the header in the tensor."""
