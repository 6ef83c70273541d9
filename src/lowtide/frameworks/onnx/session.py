"""ONNX Runtime sessions that run a model exactly as its file says, with nothing held longer than its last use."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from numpy.typing import NDArray

from lowtide.errors import UnsupportedError
from lowtide.frameworks.onnx.allocator import CountingAllocator

Array = NDArray[Any]


class Session(Protocol):
    """The part of ONNX Runtime's InferenceSession that is used here."""

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Array]) -> list[Any]:
        """Run the model."""
        ...


def open_session(
    model: bytes, *, dims: Mapping[str, int], folder: Path | None, allocator: CountingAllocator
) -> Session:
    """Open a session that follows the file's order, frees at last use and allocates through `allocator`.

    Online optimization would append fused nodes at the end, reuse and arenas would blur lifetimes: all are off. One
    thread keeps kernels' workspaces small and results the same. `folder` is where external data lies.
    Raises UnsupportedError for a model that ONNX Runtime cannot run.
    """
    try:
        onnxruntime: Any = import_module("onnxruntime")
    except ImportError:
        raise UnsupportedError("ONNX Runtime is not installed; install lowtide[onnx] to measure") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    options.intra_op_num_threads = 1
    options.enable_mem_reuse = False
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = False
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.register_custom_ops_library(str(allocator.path))
    for name, size in dims.items():
        options.add_free_dimension_override_by_name(name, size)
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder.absolute()))
    onnxruntime.set_seed(0)
    try:
        return cast("Session", onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]))
    except Exception as error:  # ONNX Runtime has an exception type per kind of failure and no common one
        raise UnsupportedError(f"ONNX Runtime cannot load the model: {one_line(error)}") from None


def one_line(error: Exception) -> str:
    """Return an exception's text as one line of sensible length."""
    return " ".join(str(error).split())[:300]
