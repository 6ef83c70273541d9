"""Sessions that run a model in file order and free values at their last use."""

from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from onnx import ModelProto

from lowtide.core.errors import MissingExtraError, UnsupportedError, one_line
from lowtide.frameworks.arena.allocator import NativeAllocator
from lowtide.frameworks.onnx.loading.load import SHARING
from lowtide.frameworks.onnx.operators.nodes import all_nodes


def follow_file(
    options: Any, allocator: NativeAllocator | None, *, planned: bool, by_default: bool = False, shares: bool = False
) -> None:
    """Set options so that values live from writer to last reader, allocated through `allocator`.

    Without it, the runtime allocates them and nodes may write into their inputs. A `planned` file runs unoptimized, in
    its order or, if `by_default`, in the default order. With `shares`, its nodes go on sharing results of a
    DequantizeLinear.
    """
    if planned:
        onnxruntime: Any = import_module("onnxruntime")
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        orders = onnxruntime.ExecutionOrder
        options.execution_order = orders.DEFAULT if by_default else orders.PRIORITY_BASED
    allow_copies(options, allowed=not shares)
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = False
    if allocator is None:
        return
    options.enable_mem_reuse = False
    if _entry(options, _ENVIRONMENT) != "1":
        options.add_session_config_entry(_ENVIRONMENT, "1")
    try:
        options.register_custom_ops_library(str(allocator.path))
    except Exception as error:  # before 1.23, Python and C have separate environments
        runtime: Any = import_module("onnxruntime")
        message = f"runs at planned addresses need ONNX Runtime 1.23 or later; {runtime.__version__} is installed"
        raise UnsupportedError(f"{message} ({one_line(error, 100)})") from None


_ENVIRONMENT = "session.use_env_allocators"
_NO_COPIES = "session.disable_quant_qdq"
_FORBIDDEN_HERE = "lowtide.forbids_copies"


def allow_copies(options: Any, *, allowed: bool) -> None:
    """Let the runtime copy a DequantizeLinear for each reader on loading, or not.

    Without copies, it fuses no quantized nodes either. Options in which only the user forbade copies stay unchanged.
    """
    are_forbidden = _entry(options, _NO_COPIES) == "1"
    if not allowed and not are_forbidden:
        options.add_session_config_entry(_NO_COPIES, "1")
        if _entry(options, _FORBIDDEN_HERE) is None:
            options.add_session_config_entry(_FORBIDDEN_HERE, "1")
    elif allowed and are_forbidden and _entry(options, _FORBIDDEN_HERE) is not None:
        options.add_session_config_entry(_NO_COPIES, "0")


def _entry(options: Any, key: str) -> str | None:
    try:
        return options.get_session_config_entry(key)
    except RuntimeError:
        return None


def sharing_of(model: ModelProto) -> Mapping[str, str]:
    """Return metadata for shared results of a DequantizeLinear; else empty."""
    nodes = list(all_nodes(model.graph))
    results = {name for node in nodes if node.op_type == "DequantizeLinear" for name in node.output}
    readers = Counter(name for node in nodes for name in node.input if name in results)
    shared = sum(count > 1 for count in readers.values())
    return {SHARING: str(shared)} if shared else {}


_KEPT = ("graph_optimization_level", "execution_order", "optimized_model_filepath", "log_severity_level")


@contextmanager
def kept_options(options: Any) -> Generator[None]:
    kept = {name: getattr(options, name) for name in (*_KEPT, "enable_profiling")}
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(options, name, value)


def open_session(model: bytes, *, dims: Mapping[str, int], folder: Path | None, allocator: NativeAllocator) -> Any:
    """Open an InferenceSession as `follow_file` sets it, on one thread for reproducible results.

    `folder` holds external data. Raises UnsupportedError if ONNX Runtime does not load the model.
    """
    try:
        onnxruntime: Any = import_module("onnxruntime")
    except ImportError as error:
        raise MissingExtraError("onnx", one_line(error)) from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    follow_file(options, allocator, planned=True, shares=True)
    for name, size in dims.items():
        options.add_free_dimension_override_by_name(name, size)
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder.absolute()))
    onnxruntime.set_seed(0)
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exception types have no common base
        raise UnsupportedError(f"ONNX Runtime cannot load the model: {one_line(error)}") from None
