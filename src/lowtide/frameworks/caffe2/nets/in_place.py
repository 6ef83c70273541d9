"""Ops that Caffe2 runs in place only."""

from collections.abc import Mapping
from typing import Any

from lowtide.core.errors import GraphError

_SHIFTED = ("Allreduce", "AtomicIter", "Broadcast", "EnqueueBlobs", "ReceiveTensor", "ReduceScatter")
_FIRST = ("Append", "CopyRowsToTensor", "DestroyCommonWorld", "IndexFreeze", "IndexLoad", "Iter", "ScatterAssign")
_FIRST_TOO = ("Float16SparseNormalize", "ScatterWeightedSum", "SparseLpRegularizer", "SparseNormalize")
_SPARSE = ("SparseFtrl", "SparseWngrad", "RowWiseCounter")
_SPARSE_OF_THREE = ("RowWiseSparseAdam", "SparseAdadelta", "SparseAdam", "SparseStorm")
_ALL = range(64)

_ENFORCED: Mapping[str, tuple[tuple[int, int], ...]] = {
    **dict.fromkeys((*_SHIFTED, "SafeEnqueueBlobs"), tuple((place + 1, place) for place in _ALL)),
    **dict.fromkeys((*_FIRST, *_FIRST_TOO), ((0, 0),)),
    **dict.fromkeys(_SPARSE, ((0, 0), (1, 1))),
    **dict.fromkeys(_SPARSE_OF_THREE, ((0, 0), (1, 1), (2, 2))),
    **dict.fromkeys(
        ("CollectTensor", "DataCouple", "NCCLBroadcast", "TrimDataset"), tuple((place, place) for place in _ALL)
    ),
    "LastNWindowCollector": ((0, 0), (1, 1), (4, 2)),
    "ReservoirSampling": ((0, 0), (1, 1), (5, 2), (6, 3)),
    "SparseMomentumSGDUpdate": ((1, 1), (3, 2)),
    "SpatialBN": ((3, 1), (4, 2)),
}
_ENFORCED_FAMILIES = ("SparseAdagrad", "RowWiseSparseAdagrad")


def check_in_place(net: Any) -> None:
    """Raise GraphError for an op that has an output of its own where its kernel writes over an input.

    Source: the schemas of Caffe2 1.9.1.
    """
    for position, op in enumerate(net.op):
        enforced = ((0, 0), (1, 1)) if op.type.startswith(_ENFORCED_FAMILIES) else _ENFORCED.get(op.type, ())
        for read, written in enforced:
            if read < len(op.input) and written < len(op.output) and op.input[read] != op.output[written]:
                raise GraphError(
                    f"op {position} ({op.type}) writes {op.output[written]!r} and runs in place only; give its output "
                    f"the name of its input, {op.input[read]!r}"
                )
