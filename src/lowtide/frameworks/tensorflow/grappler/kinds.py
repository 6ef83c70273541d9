"""The op kinds that Grappler's memory optimizer knows; data."""

CHEAP_KINDS = frozenset(
    {"Add", "AddN", "BiasAdd", "Cast", "Fill", "FloorDiv", "FloorMod", "FusedBatchNorm", "Mul", "Neg", "RealDiv"}
    | {"Reciprocal", "Relu", "Relu6", "Reshape", "Rsqrt", "Sigmoid", "Sqrt", "Square", "SquaredDifference", "Sub"}
    | {"Tile", "Transpose"}
)
"""What Grappler itself calls cheap to recompute."""

CHEAP_KINDS_TODAY = CHEAP_KINDS | {
    *("AddV2", "Elu", "Exp", "FusedBatchNormV2", "FusedBatchNormV3", "LeakyRelu", "Maximum", "Minimum", "Selu"),
    *("Concat", "ConcatV2", "Softplus", "Softsign", "Tanh"),
}
"""The same with the names that today's graphs use."""

SUM_KINDS = frozenset({"AccumulateNV2", "AddN"})
"""Sums of any number of values."""

FORWARDING_KINDS = frozenset({"Identity", "Reshape"})
"""Ops whose result is their input under another name."""

FORWARDING_KINDS_TODAY = FORWARDING_KINDS | {
    *("EnsureShape", "ExpandDims", "PreventGradient", "ReadVariableOp", "Squeeze", "StopGradient"),
}
"""The same with what Grappler takes for values of their own: swapping a variable that was read frees nothing."""

FRAME_KINDS = frozenset({"Enter", "Exit", "NextIteration", "RefEnter", "RefExit", "RefNextIteration"})
BRANCH_KINDS = frozenset({"Merge", "RefMerge", "RefSwitch", "Switch"})
"""Ops at the border of a loop or of a branch that may not run."""

ASSIGN_KINDS = frozenset({"Assign", "AssignVariableOp"})
SEND_KINDS = frozenset({"_HostSend", "_Send"})
