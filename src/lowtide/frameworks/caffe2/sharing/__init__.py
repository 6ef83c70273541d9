"""Sharing storage by name: slots that hold blobs one after the other, for runtimes that know no addresses."""

from lowtide.frameworks.caffe2.sharing.blob_ranges import BlobRange, blob_ranges
from lowtide.frameworks.caffe2.sharing.branch_safe import share_branch_safe
from lowtide.frameworks.caffe2.sharing.dependences import interference_edges
from lowtide.frameworks.caffe2.sharing.gradients import share_gradients
from lowtide.frameworks.caffe2.sharing.graph_sharing import Sharing, share
from lowtide.frameworks.caffe2.sharing.inference import share_inference
from lowtide.frameworks.caffe2.sharing.inference_fast import share_inference_fast
from lowtide.frameworks.caffe2.sharing.interference import InterferenceSharing, share_by_interference
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet, NamedOp
from lowtide.frameworks.caffe2.sharing.net_orders import longest_path_order, merged_path_order, topological_order
from lowtide.frameworks.caffe2.sharing.release import release_when_used
from lowtide.frameworks.caffe2.sharing.rename import SharedNet, Statistics, rename_blobs, sharing_statistics
from lowtide.frameworks.caffe2.sharing.slot_offsets import slot_offsets
from lowtide.frameworks.caffe2.sharing.slots import SlotAssignment, greedy_slots, optimal_slots
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
