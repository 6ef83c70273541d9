"""TensorFlow's ops: kinds, arguments and effects; scripts/write_tensorflow_ops.py writes their table."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lowtide.frameworks.tensorflow.graphs.attributes import integer, integers
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef

VARIABLES = frozenset({"AutoReloadVariable", "VarHandleOp", "Variable", "VariableV2", "_VarHandlesOp"})

CONSTANTS = frozenset({"Const", "HostConst"})
PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2", "_Arg", "_DeviceArg"})

SOURCES = CONSTANTS | PLACEHOLDERS | VARIABLES

VIEWS = frozenset(
    {"Bitcast", "CheckNumerics", "EnsureShape", "ExpandDims", "Identity", "IdentityN", "PlaceholderWithDefault"}
    | {"PreventGradient", "ReadVariableOp", "RefIdentity", "Reshape", "Squeeze", "StopGradient", "_ReadVariablesOp"}
    | {"_RetVal", "_Retval", "_DeviceRetval"}
)

BARRIERS = frozenset({"IdentityN"})
"""Views that wait for all their inputs."""

ALL_PORTS = BARRIERS | {"_ReadVariablesOp"}
"""Views of every input, not only the first."""

READS_OF_RESOURCES = frozenset(
    {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape", "_ReadVariablesOp"}
    | {"IsVariableInitialized", "LookupTableFindV2", "LookupTableSizeV2", "ResourceStridedSlice"}
)

ELEMENTWISE = frozenset(
    {"Abs", "Add", "AddV2", "BiasAdd", "Ceil", "Cos", "Div", "DivNoNan", "Elu", "EluGrad", "Erf", "Exp", "Expm1"}
    | {"Floor", "FloorDiv", "FloorMod", "Inv", "InvGrad", "LeakyRelu", "LeakyReluGrad", "Log", "Log1p", "LogSoftmax"}
    | {"Maximum", "Minimum", "Mul", "MulNoNan", "Neg", "Pow", "RealDiv", "Reciprocal", "ReciprocalGrad", "Relu"}
    | {"Relu6", "Relu6Grad", "ReluGrad", "Rint", "Round", "Rsqrt", "RsqrtGrad", "Selu", "SeluGrad", "Sigmoid"}
    | {"SigmoidGrad", "Sign", "Sin", "Softmax", "Softplus", "SoftplusGrad", "Softsign", "SoftsignGrad", "Sqrt"}
    | {"SqrtGrad", "Square", "SquaredDifference", "Sub", "Tan", "Tanh", "TanhGrad", "Xdivy", "Xlogy"}
)
"""May run in place on an input of the same size."""

INLINE = (
    SOURCES
    | {"BroadcastGradientArgs", "ConcatOffset", "ExpandDims", "Identity", "IdentityN", "NoOp", "PreventGradient"}
    | {"Rank", "ReadVariableOp", "Reshape", "Shape", "ShapeN", "Size", "Squeeze", "StopGradient"}
)
"""Cheap ops that the executor runs as soon as ready."""

FILTER_GRADIENT, BIAS_GRADIENT = "Conv2DBackpropFilter", "BiasAddGrad"
"""Fused by oneDNN."""

SEEDED = frozenset(
    {"Multinomial", "ParameterizedTruncatedNormal", "RandomCrop", "RandomGamma", "RandomPoisson", "RandomPoissonV2"}
    | {"RandomShuffle", "RandomStandardNormal", "RandomUniform", "RandomUniformInt", "TruncatedNormal"}
)
"""Random ops; without a seed, they differ between sessions."""

COPY_OUT, COPY_BACK = "_CopyFromGpuToHost", "_CopyFromHostToGpu"
"""The ops of a swap; only in TensorFlow for GPUs."""

CONTROL_FLOW_V1 = frozenset(
    {"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch", "_SwitchN"}
    | {"RefEnter", "RefExit", "RefMerge", "RefNextIteration", "RefSwitch"}
)

LOOPS = frozenset({"StatelessWhile", "While"})
BRANCHES = frozenset({"Case", "If", "StatelessCase", "StatelessIf"})
CALLS = frozenset({"PartitionedCall", "RemoteCall", "StatefulPartitionedCall", "SymbolicGradient"})
CALLING = LOOPS | BRANCHES | CALLS

FUNCTION_ATTRIBUTES = ("f", "body", "cond", "then_branch", "else_branch", "branches")

BYTES_OF_TYPES = {
    **dict.fromkeys((4, 6, 10, 11, 12, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33), 1),
    **dict.fromkeys((5, 14, 15, 16, 17, 19), 2),
    **dict.fromkeys((1, 3, 13, 22), 4),
    **dict.fromkeys((2, 8, 9, 23), 8),
    18: 16,
    7: 24,
}
"""Of an element; for texts, of the tensor's header."""


RESOURCE, VARIANT = 20, 21
_TABLE = Path(__file__).parent / "operators.tsv"


@dataclass(frozen=True, slots=True)
class ArgumentSpec:
    """One or more inputs or outputs of an op."""

    name: str
    count: str
    """The attribute with their number; "" for one, "*" for one per item of `kind`."""
    kind: str
    """A data type, or the attribute with it."""
    is_reference: bool

    def types(self, node: NodeDef, defaults: dict[str, int]) -> list[int]:
        if self.count == "*":
            return integers(node.attribute(self.kind))
        one = int(self.kind) if self.kind.isdigit() else _number(node, self.kind, defaults)
        return [one] * (_number(node, self.count, defaults) if self.count else 1)


@dataclass(frozen=True, slots=True)
class OpSpec:
    """Arguments and effects of an op."""

    is_stateful: bool
    inputs: tuple[ArgumentSpec, ...]
    outputs: tuple[ArgumentSpec, ...]
    defaults: dict[str, int]

    def output_types(self, node: NodeDef) -> list[int]:
        return [kind for argument in self.outputs for kind in argument.types(node, self.defaults)]

    def output_place(self, node: NodeDef, name: str) -> int | None:
        """Return the index of a named output's first value."""
        place = 0
        for argument in self.outputs:
            if argument.name == name:
                return place
            place += len(argument.types(node, self.defaults))
        return None

    def input_types(self, node: NodeDef) -> list[tuple[int, bool]]:
        return [
            (kind, argument.is_reference) for argument in self.inputs for kind in argument.types(node, self.defaults)
        ]


@cache
def spec_of(op: str) -> OpSpec | None:
    """None if TensorFlow does not have the op."""
    line = _lines().get(op)
    if line is None:
        return None
    stateful, inputs, outputs, defaults = (*line, "", "", "", "")[:4]
    return OpSpec(
        stateful == "s",
        tuple(_argument("", each) for each in inputs.split()),
        tuple(_argument(*each.split(":")) for each in outputs.split()),
        {name: int(value) for name, _, value in (each.partition("=") for each in defaults.split())},
    )


@cache
def _lines() -> dict[str, list[str]]:
    rows = (line.split("\t") for line in _TABLE.read_text(encoding="utf-8").splitlines())
    return {name: columns for name, *columns in rows}


def _argument(name: str, kind: str) -> ArgumentSpec:
    is_reference = kind.startswith("&")
    count, star, kind = kind.removeprefix("&").rpartition("*")
    return ArgumentSpec(name, count or star, kind, is_reference)


def _number(node: NodeDef, attribute: str, defaults: dict[str, int]) -> int:
    return integer(node.attribute(attribute), defaults.get(attribute, 0))
