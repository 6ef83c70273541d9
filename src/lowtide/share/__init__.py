"""Sharing storage by name: slots that hold blobs one after the other, for runtimes that know no addresses."""

from lowtide.share.blob_ranges import BlobRange, blob_ranges
from lowtide.share.branch_safe import share_branch_safe
from lowtide.share.dependences import interference_edges
from lowtide.share.gradients import share_gradients
from lowtide.share.graph_sharing import Sharing, share
from lowtide.share.inference import share_inference
from lowtide.share.inference_fast import share_inference_fast
from lowtide.share.interference import InterferenceSharing, share_by_interference
from lowtide.share.named_net import NamedNet, NamedOp
from lowtide.share.net_orders import longest_path_order, merged_path_order, topological_order
from lowtide.share.release import release_when_used
from lowtide.share.rename import SharedNet, Statistics, rename_blobs, sharing_statistics
from lowtide.share.slot_offsets import slot_offsets
from lowtide.share.slots import SlotAssignment, greedy_slots, optimal_slots
from lowtide.share.verify_sharing import verify_assignments, verify_equality, verify_in_place

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
