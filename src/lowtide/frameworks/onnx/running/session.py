"""ONNX Runtime sessions that run a model exactly as its file says, with nothing held longer than its last use."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from numpy.typing import NDArray

from lowtide.core.errors import MissingExtraError, UnsupportedError, one_line
from lowtide.frameworks.arena.allocator import NativeAllocator

Array = NDArray[Any]


class RuntimeSession(Protocol):
    """The part of ONNX Runtime's InferenceSession that is used here."""

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Array]) -> list[Any]:
        """Run the model."""
        ...


def follow_file(options: Any, allocator: NativeAllocator, *, planned: bool, by_default: bool = False) -> None:
    """Set up options so that values live from their writer to their last reader, allocated through `allocator`.

    Reuse, patterns and arenas of the runtime's own blur lifetimes: all are off. For a `planned` file nodes run in its
    order, unless the runtime's default order is the planned one, and nothing is optimized: online optimization would
    append fused nodes at the end.
    """
    if planned:
        onnxruntime: Any = import_module("onnxruntime")
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        orders = onnxruntime.ExecutionOrder
        options.execution_order = orders.DEFAULT if by_default else orders.PRIORITY_BASED
    options.enable_mem_reuse = False
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = False
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.register_custom_ops_library(str(allocator.path))


def open_session(
    model: bytes, *, dims: Mapping[str, int], folder: Path | None, allocator: NativeAllocator
) -> RuntimeSession:
    """Open a session that follows the file's order, frees at last use and allocates through `allocator`.

    See `follow_file`. One thread keeps kernels' workspaces small and results the same. `folder` is where external data
    lies.
    Raises UnsupportedError for a model that ONNX Runtime cannot run.
    """
    try:
        onnxruntime: Any = import_module("onnxruntime")
    except ImportError as error:
        raise MissingExtraError("onnx", one_line(error)) from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    follow_file(options, allocator, planned=True)
    for name, size in dims.items():
        options.add_free_dimension_override_by_name(name, size)
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder.absolute()))
    onnxruntime.set_seed(0)
    try:
        return cast("RuntimeSession", onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]))
    except Exception as error:  # ONNX Runtime has an exception type per kind of failure and no common one
        raise UnsupportedError(f"ONNX Runtime cannot load the model: {one_line(error)}") from None
