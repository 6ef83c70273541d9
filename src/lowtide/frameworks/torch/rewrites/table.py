"""All rewrites by name, and which of them each kind of program goes through, in which order."""

from collections.abc import Sequence
from typing import Any

from lowtide.frameworks.torch.rewrites.batch_norm import SplitBatchNorm
from lowtide.frameworks.torch.rewrites.boundary import InsertBoundary
from lowtide.frameworks.torch.rewrites.canonicalize import Canonicalize
from lowtide.frameworks.torch.rewrites.checkpoints import RepeatCheckpointed
from lowtide.frameworks.torch.rewrites.chunks.by_rows import ProductsByRows
from lowtide.frameworks.torch.rewrites.chunks.in_chunks import InChunks
from lowtide.frameworks.torch.rewrites.chunks.loss_gradient import LossGradientByRows
from lowtide.frameworks.torch.rewrites.chunks.mean_losses import MeanLosses
from lowtide.frameworks.torch.rewrites.chunks.pixel_losses import LossesOfPixels
from lowtide.frameworks.torch.rewrites.chunks.row_losses import LossesOfRows
from lowtide.frameworks.torch.rewrites.chunks.rows_again import RowsAgain
from lowtide.frameworks.torch.rewrites.concatenated_parts import CopyIntoConcatenations
from lowtide.frameworks.torch.rewrites.drop_dead_code import DropDeadCode
from lowtide.frameworks.torch.rewrites.dropout import SplitDropout
from lowtide.frameworks.torch.rewrites.follow_views import FollowViews
from lowtide.frameworks.torch.rewrites.merge_common import MergeCommonSubexpressions
from lowtide.frameworks.torch.rewrites.old_contents import SaveOldContents
from lowtide.frameworks.torch.rewrites.out_of_place import WriteOutOfPlace
from lowtide.frameworks.torch.rewrites.outline_chunks import OutlineChunks
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite
from lowtide.frameworks.torch.rewrites.save_inputs_flat import SaveInputsFlat
from lowtide.frameworks.torch.rewrites.save_masks_as_bytes import SaveMasksAsBytes
from lowtide.frameworks.torch.rewrites.snapshots import SnapshotOverwrittenInputs
from lowtide.frameworks.torch.rewrites.split_foreach import SplitForeach
from lowtide.frameworks.torch.rewrites.stored_values import StoreEarlyValues
from lowtide.frameworks.torch.rewrites.take_inputs_flat import TakeInputsFlat
from lowtide.frameworks.torch.rewrites.take_masks_as_bytes import TakeMasksAsBytes

Rewrites = Sequence[Rewrite[Any]]

REWRITES: dict[str, type[Rewrite[Any]]] = {
    "split-foreach": SplitForeach,
    "canonicalize": Canonicalize,
    "split-batch-norm": SplitBatchNorm,
    "write-out-of-place": WriteOutOfPlace,
    "losses-of-rows": LossesOfRows,
    "losses-of-pixels": LossesOfPixels,
    "mean-losses": MeanLosses,
    "rows-again": RowsAgain,
    "products-by-rows": ProductsByRows,
    "loss-gradient-by-rows": LossGradientByRows,
    "in-chunks": InChunks,
    "outline-chunks": OutlineChunks,
    "drop-dead-code": DropDeadCode,
    "merge-common-subexpressions": MergeCommonSubexpressions,
    "split-dropout": SplitDropout,
    "insert-boundary": InsertBoundary,
    "snapshot-overwritten-inputs": SnapshotOverwrittenInputs,
    "follow-views": FollowViews,
    "repeat-checkpointed": RepeatCheckpointed,
    "save-old-contents": SaveOldContents,
    "store-early-values": StoreEarlyValues,
    "copy-into-concatenations": CopyIntoConcatenations,
    "save-inputs-flat": SaveInputsFlat,
    "take-inputs-flat": TakeInputsFlat,
    "save-masks-as-bytes": SaveMasksAsBytes,
    "take-masks-as-bytes": TakeMasksAsBytes,
}

GIVEN: Rewrites = (FollowViews(), SplitForeach(), Canonicalize())
"""For a graph that the user made."""

TRACED: Rewrites = (*GIVEN, SplitBatchNorm())
"""For a program that lowtide traced; a training step then goes through `write_out_of_place`."""

INFERENCE: Rewrites = (FollowViews(), Canonicalize(), DropDeadCode())
"""For a forward pass without gradients, from `torch.compile`."""

JOINT: Rewrites = (*INFERENCE, MergeCommonSubexpressions(), FollowViews())
"""For a joint graph, from `torch.compile`, before its boundary is inserted."""

RUNS_AGAIN: Rewrites = (SnapshotOverwrittenInputs(), FollowViews())
"""For a joint graph with its boundary, where the plan says what runs again."""

CHECKPOINTED: Rewrites = (RepeatCheckpointed(),)
"""For a joint graph with its boundary, where the user alone says what runs again."""
