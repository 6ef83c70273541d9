"""Caffe2's memonger under its own names.

Arguments and results are those of `caffe2.python.memonger`. Nets are NetDefs of lowtide or of caffe2_pb2. Each function
names its differences from the original; docs/caffe2.md lists them.
"""

from lowtide.frameworks.caffe2.memonger.assignments import (
    AssignmentAlgorithm,
    LiveRange,
    collect_blob_sizes,
    compute_assignments,
    compute_assignments_dp,
    compute_assignments_greedy,
    compute_blob_assignments,
    compute_ranges,
    compute_statistics,
    estimate_memory_usage,
    get_memory_usage,
    get_updated_ranges,
    is_compatible,
    verify_assignments,
)
from lowtide.frameworks.caffe2.memonger.assignments import BlobStatistics as Statistics
from lowtide.frameworks.caffe2.memonger.orders import (
    compute_interference_graph,
    topological_sort_traversal,
    topological_sort_traversal_longest_path,
)
from lowtide.frameworks.caffe2.memonger.sharing import (
    Optimization,
    apply_assignments,
    apply_recurrent_blob_assignments,
    optimize_inference_fast,
    optimize_inference_for_dag,
    optimize_interference,
    release_blobs_when_used,
    share_grad_blobs,
    verify_graph_equality,
    verify_inplace_blobs,
)

__all__ = [
    "AssignmentAlgorithm",
    "LiveRange",
    "Optimization",
    "Statistics",
    "apply_assignments",
    "apply_recurrent_blob_assignments",
    "collect_blob_sizes",
    "compute_assignments",
    "compute_assignments_dp",
    "compute_assignments_greedy",
    "compute_blob_assignments",
    "compute_interference_graph",
    "compute_ranges",
    "compute_statistics",
    "estimate_memory_usage",
    "get_memory_usage",
    "get_updated_ranges",
    "is_compatible",
    "optimize_inference_fast",
    "optimize_inference_for_dag",
    "optimize_interference",
    "release_blobs_when_used",
    "share_grad_blobs",
    "topological_sort_traversal",
    "topological_sort_traversal_longest_path",
    "verify_assignments",
    "verify_graph_equality",
    "verify_inplace_blobs",
]
