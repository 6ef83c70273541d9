"""All rewrites by name, and those of each kind of program, in order."""

from collections.abc import Sequence
from typing import Any

from lowtide.frameworks.torch.rewrites.boundary import InsertBoundary
from lowtide.frameworks.torch.rewrites.canonicalize import Canonicalize
from lowtide.frameworks.torch.rewrites.checkpoints import RepeatCheckpointed
from lowtide.frameworks.torch.rewrites.chunks.chunk_products import ChunkProducts, RecomputeRows
from lowtide.frameworks.torch.rewrites.chunks.early_gradients import EarlyGradients
from lowtide.frameworks.torch.rewrites.chunks.losses import LossesOfPixels, LossesOfRows, LossGradientByRows, MeanLosses
from lowtide.frameworks.torch.rewrites.chunks.updates import ChunkUpdates
from lowtide.frameworks.torch.rewrites.clean_up import DropDeadCode, FollowViews, MergeCommonSubexpressions
from lowtide.frameworks.torch.rewrites.fuse_chunk_ops import FuseChunkOps
from lowtide.frameworks.torch.rewrites.out_of_place import WriteOutOfPlace
from lowtide.frameworks.torch.rewrites.outline_chunks import OutlineChunks
from lowtide.frameworks.torch.rewrites.overwritten_inputs import SaveOldContents, SnapshotOverwrittenInputs
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite
from lowtide.frameworks.torch.rewrites.saved_values import (
    SaveInputsFlat,
    SaveMasksAsBytes,
    TakeInputsFlat,
    TakeMasksAsBytes,
)
from lowtide.frameworks.torch.rewrites.split_ops import SplitBatchNorm, SplitDropout, SplitForeach
from lowtide.frameworks.torch.rewrites.stored_values import CopyIntoConcatenations, StoreEarlyValues

Rewrites = Sequence[Rewrite[Any]]

_KINDS: tuple[type[Rewrite[Any]], ...] = (
    *(SplitForeach, Canonicalize, SplitBatchNorm, WriteOutOfPlace),
    *(
        LossesOfRows,
        LossesOfPixels,
        MeanLosses,
        EarlyGradients,
        RecomputeRows,
        ChunkProducts,
        LossGradientByRows,
        ChunkUpdates,
    ),
    *(OutlineChunks, FuseChunkOps, DropDeadCode, MergeCommonSubexpressions, SplitDropout, InsertBoundary),
    *(SnapshotOverwrittenInputs, FollowViews, RepeatCheckpointed, SaveOldContents),
    *(StoreEarlyValues, CopyIntoConcatenations, SaveInputsFlat, TakeInputsFlat, SaveMasksAsBytes, TakeMasksAsBytes),
)
REWRITES = {kind.name: kind for kind in _KINDS}

GIVEN: Rewrites = (FollowViews(), SplitForeach(), Canonicalize())
"""For a graph from the user."""

TRACED: Rewrites = (*GIVEN, SplitBatchNorm())
"""For a program traced by lowtide. `write_out_of_place` follows for a training step."""

INFERENCE: Rewrites = (FollowViews(), Canonicalize(), DropDeadCode())
"""For a forward pass without gradients, from `torch.compile`."""

JOINT: Rewrites = (*INFERENCE, MergeCommonSubexpressions(), FollowViews())
"""For a joint graph from `torch.compile`, before its boundary."""

RUNS_AGAIN: Rewrites = (SnapshotOverwrittenInputs(), FollowViews())
"""For a joint graph with its boundary, under a plan that recomputes."""

CHECKPOINTED: Rewrites = (RepeatCheckpointed(),)
"""For a joint graph with its boundary, recomputed as the user chose."""
