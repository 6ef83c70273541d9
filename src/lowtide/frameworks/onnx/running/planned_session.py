"""ONNX Runtime sessions with values at planned addresses."""

import os
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from lowtide.core.errors import UsageError
from lowtide.frameworks.arena.allocator import Arena, native_allocator
from lowtide.frameworks.arena.runs import Key, PlannedRuns, RunsInArena, addresses_from_text
from lowtide.frameworks.onnx.loading.load import ADDRESSES, BY_DEFAULT, PLANNED, SHARING, SMALL, read_metadata
from lowtide.frameworks.onnx.running.machine import check_machine
from lowtide.frameworks.onnx.running.session import follow_file, kept_options

onnxruntime: Any = import_module("onnxruntime")  # it has no types


class PlannedSession(RunsInArena, onnxruntime.InferenceSession):  # pyright: ignore[reportUntypedBaseClass]
    """An InferenceSession with planned addresses, recorded as in `Session`.

    Files by lowtide run in file order, others as ONNX Runtime orders and optimizes them. Files marked as small run
    without an arena.
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
        """Open a model like InferenceSession, optionally in a shared `arena`; raises as `Session`."""
        options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        check_sequential(options)
        allocator = native_allocator()
        metadata = read_metadata(path_or_bytes)
        check_machine(metadata)
        by_default = metadata.get(PLANNED, "").endswith(BY_DEFAULT)
        # Workspaces depend on the number of threads.
        self._threads = options.intra_op_num_threads or os.cpu_count() or 1
        noted = addresses_from_text(allocator, metadata.get(ADDRESSES, ""))
        self._runs = PlannedRuns(Arena(allocator) if arena is None else arena, noted)
        stock: Any = super()
        with kept_options(options):
            follow_file(
                options,
                None if SMALL in metadata else allocator,
                planned=PLANNED in metadata,
                by_default=by_default,
                shares=SHARING in metadata,
            )
            stock.__init__(path_or_bytes, options, providers or ["CPUExecutionProvider"], provider_options, **more)
        if SMALL in metadata:
            kind: Any = type(self)
            self.__class__ = _with_stock_runs(kind)

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None) -> Any:
        """Compute the outputs like InferenceSession."""
        key = ("run", self._threads, *(output_names or ()), *_shapes(input_feed))
        stock: Any = super()
        return self._runs.within(key, stock.run, output_names, input_feed, run_options)

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> Any:
        """Compute with OrtValues."""
        key = ("values", self._threads, *(output_names or ()), *_shapes(input_dict_ort_values))
        stock: Any = super()
        return self._runs.within(key, stock.run_with_ort_values, output_names, input_dict_ort_values, run_options)

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """Compute bound outputs; all bindings count as one kind of run."""
        stock: Any = super()
        self._runs.within(("bound", self._threads), stock.run_with_iobinding, iobinding, run_options)

    def noted_addresses(self) -> str | None:
        return self._runs.noted_addresses()


@cache
def _with_stock_runs(kind: Any) -> Any:
    """Return a subclass that runs as the stock session does: calls between cost small models percents."""
    stock = onnxruntime.InferenceSession
    runs = ("run", "run_with_ort_values", "run_with_iobinding")
    return type(kind.__name__, (kind,), {name: getattr(stock, name) for name in runs})


def check_sequential(options: Any) -> None:
    """Raise UsageError if SessionOptions ask for parallel execution."""
    if options.execution_mode != onnxruntime.ExecutionMode.ORT_SEQUENTIAL:
        raise UsageError("planned addresses need sequential execution; leave execution_mode unset")


def _shapes(values: Mapping[str, Any]) -> list[Key]:
    return [
        # Unlike str(), dtype.str is fast.
        (name, value.dtype.str, *value.shape) if type(value) is np.ndarray else (name, *_shape(value))
        for name, value in values.items()
    ]


def _shape(value: Any) -> Key:
    shape: Any = getattr(value, "shape", None)
    if callable(shape):  # an OrtValue
        sizes: Any = shape()
        return (value.data_type(), *sizes)
    dtype: Any = getattr(value, "dtype", None)
    return (type(value).__name__ if dtype is None else dtype.str, *(shape or ()))
