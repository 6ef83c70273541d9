"""ONNX Runtime sessions whose values lie at planned addresses, in the order of the file where that was planned."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar, cast

from lowtide.errors import UsageError
from lowtide.frameworks.onnx.loading.metadata import ADDRESSES, PLANNED, read_metadata
from lowtide.frameworks.onnx.running.addresses import Key, addresses_from_text, addresses_to_text, plan_addresses
from lowtide.frameworks.onnx.running.allocator import Arena, ArenaRun, RunAddresses, native_allocator
from lowtide.frameworks.onnx.running.session import follow_file

Value = TypeVar("Value")
onnxruntime: Any = import_module("onnxruntime")  # it has no types

_MOST_RECORDINGS = 4
"""How often runs of one kind are recorded: the first may allocate what later ones keep, and data may decide sizes."""
_MOST_KINDS = 64
"""Of so many kinds of runs (shapes of the inputs) the addresses are kept; beyond, the first one is forgotten."""


@dataclass(slots=True, kw_only=True)
class ArenaUse:
    """What became of the runs of a session."""

    recorded: int = 0
    """Runs that were recorded, to learn addresses: they allocate as usual."""
    served: int = 0
    """Runs of which every allocation lay where it was planned."""
    fallbacks: Counter[str] = field(default_factory=Counter[str])
    """Runs that went on by ordinary allocation, by the reason."""


@dataclass(slots=True)
class _Kind:
    """Runs with inputs of the same shapes."""

    addresses: RunAddresses | None = None
    recordings: int = 0
    stale: bool = True


class Session(onnxruntime.InferenceSession):  # pyright: ignore[reportUntypedBaseClass]
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
        follow_file(options, allocator, planned=PLANNED in metadata)
        # Kernels' workspaces have a share for every thread.
        self._threads = options.intra_op_num_threads or os.cpu_count() or 1
        self.arena = Arena(allocator) if arena is None else arena
        self.use = ArenaUse()
        noted = addresses_from_text(allocator, metadata.get(ADDRESSES, ""))
        self._kinds = {key: _Kind(addresses, stale=False) for key, addresses in noted.items()}
        stock: Any = super()
        stock.__init__(path_or_bytes, options, providers or ["CPUExecutionProvider"], provider_options, **more)

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None) -> Any:
        """Compute the outputs as InferenceSession does."""
        key = ("run", self._threads, *(output_names or ()), *_shapes(input_feed))
        stock: Any = super()
        return self._within_arena(key, lambda: stock.run(output_names, input_feed, run_options))

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> Any:
        """Compute the outputs as InferenceSession does, from and to values of the runtime's."""
        key = ("values", self._threads, *(output_names or ()), *_shapes(input_dict_ort_values))
        stock: Any = super()
        return self._within_arena(
            key, lambda: stock.run_with_ort_values(output_names, input_dict_ort_values, run_options)
        )

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """Compute what is bound as InferenceSession does; runs of all bindings count as one kind."""
        stock: Any = super()
        self._within_arena(("bound", self._threads), lambda: stock.run_with_iobinding(iobinding, run_options))

    @property
    def reserved_bytes(self) -> int:
        """The most that a run of any kind so far needs: its part of the arena, and its results outside of it."""
        known = [kind.addresses for kind in self._kinds.values() if kind.addresses is not None]
        return max((addresses.arena_bytes + addresses.outliving_bytes for addresses in known), default=0)

    def noted_addresses(self) -> str | None:
        """Return the addresses that were learned last, as a file's metadata notes them; None where none were."""
        learned = [(key, kind.addresses) for key, kind in self._kinds.items() if kind.addresses is not None]
        return addresses_to_text(dict(learned[-1:])) if learned else None

    def _within_arena(self, key: Key, call: Callable[[], Value]) -> Value:
        kind = self._kind(key)
        addresses = None if kind.stale else kind.addresses
        run = ArenaRun(self.arena, addresses)
        try:
            result = call()
        except BaseException:
            run.end()
            raise
        report = run.end()
        if addresses is None:
            self.use.recorded += 1
            kind.recordings += 1
            kind.stale = False
            kind.addresses = plan_addresses(self.arena.allocator, run.recorded(report.allocations))
        elif report.deviation:
            self.use.fallbacks[report.deviation] += 1
            kind.stale = report.deviation != "arena in use" and kind.recordings < _MOST_RECORDINGS
        else:
            self.use.served += 1
        return result

    def _kind(self, key: Key) -> _Kind:
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds.setdefault(key, _Kind())
            while len(self._kinds) > _MOST_KINDS:
                self._kinds.pop(next(iter(self._kinds)), None)
        return kind


def _shapes(values: Mapping[str, Any]) -> list[Key]:
    return [(name, *_shape(value)) for name, value in values.items()]


def _shape(value: Any) -> Key:
    shape = getattr(value, "shape", None)
    if callable(shape):  # a value of the runtime's
        return (value.data_type(), *cast("Sequence[int]", shape()))
    dtype = getattr(value, "dtype", None)
    # A dtype's `str` is an attribute; calling str() takes as long as a small op.
    return (type(value).__name__ if dtype is None else dtype.str, *cast("Sequence[int]", shape or ()))
