"""Public names for sharing storage by name, for runtimes that know no addresses."""

from lowtide.frameworks.caffe2.sharing.branch_safe import share_branch_safe, share_gradients, share_inference
from lowtide.frameworks.caffe2.sharing.graph_sharing import Sharing, share, slot_offsets
from lowtide.frameworks.caffe2.sharing.inference_fast import share_inference_fast
from lowtide.frameworks.caffe2.sharing.named_net import BlobRange, NamedNet, NamedOp, blob_ranges
from lowtide.frameworks.caffe2.sharing.orders import (
    interference_edges,
    longest_path_order,
    merged_path_order,
    topological_order,
)
from lowtide.frameworks.caffe2.sharing.rename import (
    SharedNet,
    Statistics,
    release_when_used,
    rename_blobs,
    sharing_statistics,
)
from lowtide.frameworks.caffe2.sharing.slots import (
    InterferenceSharing,
    SlotAssignment,
    greedy_slots,
    optimal_slots,
    share_by_interference,
)
from lowtide.frameworks.caffe2.sharing.verify_sharing import verify_assignments, verify_equality, verify_in_place

__all__ = [
    "BlobRange",
    "InterferenceSharing",
    "NamedNet",
    "NamedOp",
    "SharedNet",
    "Sharing",
    "SlotAssignment",
    "Statistics",
    "blob_ranges",
    "greedy_slots",
    "interference_edges",
    "longest_path_order",
    "merged_path_order",
    "optimal_slots",
    "release_when_used",
    "rename_blobs",
    "share",
    "share_branch_safe",
    "share_by_interference",
    "share_gradients",
    "share_inference",
    "share_inference_fast",
    "sharing_statistics",
    "slot_offsets",
    "topological_order",
    "verify_assignments",
    "verify_equality",
    "verify_in_place",
]
