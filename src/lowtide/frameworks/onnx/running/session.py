"""ONNX Runtime sessions that run a model exactly as its file says, with nothing held longer than its last use."""

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from numpy.typing import NDArray

from lowtide import _native
from lowtide.errors import MissingExtraError, UnsupportedError, one_line

Array = NDArray[Any]


class Session(Protocol):
    """The part of ONNX Runtime's InferenceSession that is used here."""

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Array]) -> list[Any]:
        """Run the model."""
        ...


class CountingAllocator:
    """Live and peak bytes of the sessions that were opened with it; there is one per process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        for name in ("lowtide_live_bytes", "lowtide_peak_bytes"):
            getattr(self._library, name).restype = ctypes.c_int64

    @property
    def live_bytes(self) -> int:
        """Bytes allocated and not freed."""
        return self._library.lowtide_live_bytes()

    @property
    def peak_bytes(self) -> int:
        """The largest `live_bytes` since the last restart."""
        return self._library.lowtide_peak_bytes()

    def restart_peak(self) -> None:
        """Begin a new peak at what is live now."""
        self._library.lowtide_restart_peak()


@cache
def counting_allocator() -> CountingAllocator:
    """Return the allocator, which lies beside the native kernels; raises UnsupportedError where it was not built."""
    path = Path(_native.__file__).with_name("onnxruntime_allocator.so")
    if not path.is_file():
        raise UnsupportedError(f"{path} was not built, so ONNX models cannot be measured; install lowtide again")
    return CountingAllocator(path)


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
    except ImportError as error:
        raise MissingExtraError("onnx", one_line(error)) from None
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
