"""Ops in place, random, stateful or unknown."""

from collections.abc import Mapping
from typing import Any

from lowtide.core.errors import GraphError
from lowtide.frameworks.caffe2.nets.arguments import Arguments
from lowtide.frameworks.caffe2.shapes.rules import RULES
from lowtide.frameworks.caffe2.sharing.rename import FREE

_Pairs = tuple[tuple[int, int], ...]
_IN_PLACE: Mapping[str, _Pairs] = {
    **dict.fromkeys(
        ("Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Negative", "Sqr", "LeakyRelu", "Elu"), ((0, 0),)
    ),
    **dict.fromkeys(("Clip", "Scale", "StopGradient", "Reshape", "Sum", "Div"), ((0, 0),)),
    **dict.fromkeys(("Add", "Sub", "Mul"), ((0, 0), (1, 0))),
    **dict.fromkeys(("ReluGradient", "SigmoidGradient", "TanhGradient"), ((1, 0),)),
}
"""Optional in-place pairs (input, output) in Caffe2's schemas. MulGradient is wrong in place."""

_ALL = range(64)
_SHIFTED = ("Allreduce", "AtomicIter", "Broadcast", "EnqueueBlobs", "ReceiveTensor", "ReduceScatter")
_FIRST = ("Append", "CopyRowsToTensor", "DestroyCommonWorld", "IndexFreeze", "IndexLoad", "Iter", "ScatterAssign")
_FIRST_TOO = ("Float16SparseNormalize", "ScatterWeightedSum", "SparseLpRegularizer", "SparseNormalize")
_FIRST_TWO = ("SparseFtrl", "SparseWngrad", "RowWiseCounter")
_FIRST_THREE = ("RowWiseSparseAdam", "SparseAdadelta", "SparseAdam", "SparseStorm")
_EACH = ("CollectTensor", "DataCouple", "NCCLBroadcast", "TrimDataset")
_ENFORCED: Mapping[str, _Pairs] = {
    **dict.fromkeys((*_SHIFTED, "SafeEnqueueBlobs"), tuple((place + 1, place) for place in _ALL)),
    **dict.fromkeys((*_FIRST, *_FIRST_TOO), ((0, 0),)),
    **dict.fromkeys(_FIRST_TWO, ((0, 0), (1, 1))),
    **dict.fromkeys(_FIRST_THREE, ((0, 0), (1, 1), (2, 2))),
    **dict.fromkeys(_EACH, tuple((place, place) for place in _ALL)),
    "LastNWindowCollector": ((0, 0), (1, 1), (4, 2)),
    "ReservoirSampling": ((0, 0), (1, 1), (5, 2), (6, 3)),
    "SparseMomentumSGDUpdate": ((1, 1), (3, 2)),
    "SpatialBN": ((3, 1), (4, 2)),
}
"""Mandatory in-place pairs in the schemas of Caffe2 1.9.1."""
_ENFORCED_FAMILIES = ("SparseAdagrad", "RowWiseSparseAdagrad")

_RANDOM = frozenset(("XavierFill", "MSRAFill", "GaussianFill", "UniformFill", "UniformIntFill"))
_MUTATES_STATE = frozenset(("SpatialBN", "IndexFreeze"))


def optional_in_place_pairs(op: Any) -> _Pairs:
    return _IN_PLACE.get(op.type, ())


def check_in_place(net: Any) -> None:
    """Raise GraphError for an op that must run in place but does not."""
    for position, op in enumerate(net.op):
        enforced = ((0, 0), (1, 1)) if op.type.startswith(_ENFORCED_FAMILIES) else _ENFORCED.get(op.type, ())
        for read, written in enforced:
            if read < len(op.input) and written < len(op.output) and op.input[read] != op.output[written]:
                raise GraphError(
                    f"op {position} ({op.type}) writes {op.output[written]!r} and runs in place only; give its output "
                    f"the name of its input, {op.input[read]!r}"
                )


def is_impure(op: Any) -> bool:
    if op.type == "Dropout":
        return not Arguments(op).integer("is_test")
    return op.type in _RANDOM or op.type in _MUTATES_STATE or is_unknown(op)


def is_unknown(op: Any) -> bool:
    return op.type not in RULES and op.type != FREE
