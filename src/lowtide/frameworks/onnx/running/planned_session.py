"""ONNX Runtime sessions whose values lie at planned addresses, in the order of the file where that was planned."""

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from lowtide.core.errors import UsageError
from lowtide.frameworks.arena.allocator import Arena, native_allocator
from lowtide.frameworks.arena.runs import Key, PlannedRuns, RunsInArena, addresses_from_text
from lowtide.frameworks.onnx.loading.metadata import ADDRESSES, BY_DEFAULT, PLANNED, read_metadata
from lowtide.frameworks.onnx.running.session import follow_file

onnxruntime: Any = import_module("onnxruntime")  # it has no types


class Session(RunsInArena, onnxruntime.InferenceSession):  # pyright: ignore[reportUntypedBaseClass]
    """An `onnxruntime.InferenceSession` on the CPU that keeps all values of a run in one arena at planned addresses.

    The first run with inputs of given shapes is recorded and its blocks are packed, unless the file notes addresses for
    them; later ones find every block at its place. A run that allocates otherwise (sizes that depend on data, another
    thread in the arena) goes on by ordinary allocation: `use` counts that, and nothing else changes. Results that the
    caller keeps never lie in the arena. A file that lowtide wrote is run as it stands, node after node; any other as
    ONNX Runtime orders and optimizes it.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        arena: Arena | None = None,
        **more: Any,
    ) -> None:
        """Open a model; arguments are those of InferenceSession, and `arena` is one to share with other sessions.

        The options given are changed: no arena, pattern or reuse of the runtime's own. Raises UsageError for parallel
        execution, whose allocations come in another order every time.
        """
        options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        if options.execution_mode != onnxruntime.ExecutionMode.ORT_SEQUENTIAL:
            raise UsageError("planned addresses need sequential execution; leave execution_mode as it is")
        allocator = native_allocator()
        metadata = read_metadata(path_or_bytes)
        by_default = metadata.get(PLANNED, "").endswith(BY_DEFAULT)
        follow_file(options, allocator, planned=PLANNED in metadata, by_default=by_default)
        # Kernels' workspaces have a share for every thread.
        self._threads = options.intra_op_num_threads or os.cpu_count() or 1
        noted = addresses_from_text(allocator, metadata.get(ADDRESSES, ""))
        self._runs = PlannedRuns(Arena(allocator) if arena is None else arena, noted)
        stock: Any = super()
        stock.__init__(path_or_bytes, options, providers or ["CPUExecutionProvider"], provider_options, **more)

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None) -> Any:
        """Compute the outputs as InferenceSession does."""
        key = ("run", self._threads, *(output_names or ()), *_shapes(input_feed))
        stock: Any = super()
        return self._runs.within(key, lambda: stock.run(output_names, input_feed, run_options))

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> Any:
        """Compute the outputs as InferenceSession does, from and to values of the runtime's."""
        key = ("values", self._threads, *(output_names or ()), *_shapes(input_dict_ort_values))
        stock: Any = super()
        return self._runs.within(
            key, lambda: stock.run_with_ort_values(output_names, input_dict_ort_values, run_options)
        )

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """Compute what is bound as InferenceSession does; runs of all bindings count as one kind."""
        stock: Any = super()
        self._runs.within(("bound", self._threads), lambda: stock.run_with_iobinding(iobinding, run_options))

    def noted_addresses(self) -> str | None:
        """Return the addresses that were learned last, as a file's metadata notes them; None where none were."""
        return self._runs.noted_addresses()


def _shapes(values: Mapping[str, Any]) -> list[Key]:
    return [(name, *_shape(value)) for name, value in values.items()]


def _shape(value: Any) -> Key:
    shape = getattr(value, "shape", None)
    if callable(shape):  # a value of the runtime's
        return (value.data_type(), *cast("Sequence[int]", shape()))
    dtype = getattr(value, "dtype", None)
    # A dtype's `str` is an attribute; calling str() takes as long as a small op.
    return (type(value).__name__ if dtype is None else dtype.str, *cast("Sequence[int]", shape or ()))
