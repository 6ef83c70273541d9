"""Caffe2's memonger under its own names: nets whose blobs share storage, orders, slots, checks and figures.

Arguments and results are those of `caffe2.python.memonger`; nets are NetDefs of lowtide or of caffe2_pb2. What differs
is mended: see each function, and docs/caffe2.md.
"""

from lowtide.frameworks.caffe2.memonger.assignments import (
    AssignmentAlgorithm,
    compute_assignments,
    compute_assignments_dp,
    compute_assignments_greedy,
    compute_blob_assignments,
    get_memory_usage,
    verify_assignments,
)
from lowtide.frameworks.caffe2.memonger.live_ranges import (
    LiveRange,
    compute_ranges,
    get_updated_ranges,
    is_compatible,
)
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
from lowtide.frameworks.caffe2.memonger.statistics import (
    BlobStatistics as Statistics,
)
from lowtide.frameworks.caffe2.memonger.statistics import (
    collect_blob_sizes,
    compute_statistics,
    estimate_memory_usage,
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
