"""ONNX Runtime sessions that run a model in file order and free values at their last use."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from lowtide.core.errors import MissingExtraError, UnsupportedError, one_line
from lowtide.frameworks.arena.allocator import NativeAllocator


def follow_file(options: Any, allocator: NativeAllocator, *, planned: bool, by_default: bool = False) -> None:
    """Set options so that values live from writer to last reader, allocated through `allocator`.

    A `planned` file runs unoptimized, in its order or, if `by_default`, in the default order.
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


_KEPT = ("graph_optimization_level", "execution_order", "optimized_model_filepath", "log_severity_level")


@contextmanager
def kept_options(options: Any) -> Generator[None]:
    """Restore the level, order, logs, profile and output file of SessionOptions at the end."""
    kept = {name: getattr(options, name) for name in (*_KEPT, "enable_profiling")}
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(options, name, value)


def open_session(model: bytes, *, dims: Mapping[str, int], folder: Path | None, allocator: NativeAllocator) -> Any:
    """Open an InferenceSession as `follow_file` sets it, on one thread for reproducible results and small workspaces.

    `folder` holds external data. Raises UnsupportedError if ONNX Runtime does not load the model.
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
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exception types have no common base
        raise UnsupportedError(f"ONNX Runtime cannot load the model: {one_line(error)}") from None
