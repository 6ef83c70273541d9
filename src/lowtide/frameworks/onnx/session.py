"""Sessions that plan a model on opening."""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

from onnx import GraphProto, ModelProto

from lowtide.core.errors import InputError, UnsupportedError, UsageError, one_line
from lowtide.core.files import write_bytes
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.arena.allocator import Arena, native_allocator
from lowtide.frameworks.onnx.loading.external_data import external_locations, temporary_folder
from lowtide.frameworks.onnx.loading.load import PLANNED, load_model, read_metadata
from lowtide.frameworks.onnx.model import OnnxModel
from lowtide.frameworks.onnx.operators.nodes import fed_inputs
from lowtide.frameworks.onnx.running.levels import level_of, write_optimized
from lowtide.frameworks.onnx.running.planned_session import PlannedSession, check_sequential
from lowtide.frameworks.onnx.running.session import allow_copies, kept_options
from lowtide.frameworks.onnx.shapes.infer import dynamic_dimensions, sizes_of

_SETTINGS = PlanSettings(effort="fast", addresses=False)

ModelPath = str | bytes | os.PathLike[str]


class Session(PlannedSession):
    """An `onnxruntime.InferenceSession` on the CPU with all values of a run at planned addresses in one arena.

    A file by lowtide runs in its order. Any other model is planned on opening, or at its first run if sizes are
    missing: ONNX Runtime optimizes it for this machine at the options' level, by default its last, and lowtide orders
    the nodes. The first run per input shapes is recorded and packed, unless the file has addresses. A run that
    allocates differently (data-dependent sizes, another thread) uses ordinary allocation and counts in `use`. Results
    are outside the arena. A model of fixed sizes below 32 KiB runs without an arena, as fast as in ONNX Runtime.
    """

    def __init__(
        self,
        path_or_bytes: ModelPath,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        dims: Mapping[str, int] | None = None,
        plan: bool = True,
        arena: Arena | None = None,
        **more: Any,
    ) -> None:
        """Open a model like InferenceSession, optionally in a shared `arena`.

        `dims` are sizes of dynamic dimensions to plan for, by default those of the first run; runs may have others.
        Without `plan`, or if planning fails, nodes run in the runtime's own order (see `unplanned`). The options lose
        the runtime's arena, pattern and reuse. Raises UsageError for parallel execution and wrong `dims`,
        UnsupportedError for a file for another kind of processor.
        """
        onnxruntime: Any = import_module("onnxruntime")
        options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        check_sequential(options)

        def open_model(source: ModelPath) -> None:
            super(Session, self).__init__(source, options, providers, provider_options, arena=arena, **more)

        is_planned = PLANNED in read_metadata(path_or_bytes)
        self._waiting: _UntilFirstRun | None = None
        self._planning = Lock()
        self._unplanned = None if is_planned else _reason_to_leave(options, providers, plan=plan)
        if not is_planned and self._unplanned is None:
            try:
                with _planned_here(path_or_bytes, options, dims or {}, more) as planned:
                    open_model(planned)
                    return
            except UsageError:
                raise
            except Exception as error:  # ONNX Runtime's types have no common base
                self._unplanned = one_line(error)
        level = options.graph_optimization_level
        open_model(path_or_bytes)
        if not is_planned and _reason_to_leave(options, providers, plan=plan) is None:
            missing = _missing_sizes(path_or_bytes, dims or {})
            if missing:
                self._unplanned = f"the first run sets its sizes: {', '.join(missing)}"
                self._waiting = _UntilFirstRun(
                    path_or_bytes, options, level, providers, provider_options, dims or {}, more
                )

    @property
    def unplanned(self) -> str | None:
        """Why nodes run in the runtime's own order, in one line; None if they run in a planned one."""
        return self._unplanned

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None) -> Any:
        """Compute the outputs like InferenceSession."""
        if self._waiting is not None:
            self._plan_for(input_feed)
        return super().run(output_names, input_feed, run_options)

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> Any:
        """Compute with OrtValues."""
        if self._waiting is not None:
            self._plan_for(input_dict_ort_values)
        return super().run_with_ort_values(output_names, input_dict_ort_values, run_options)

    def io_binding(self) -> Any:
        """Return a binding, after which the nodes are no longer planned."""
        stock: Any = super()
        with self._planning:  # a run in another thread may be replacing the nodes
            if self._waiting is not None:
                self._waiting, self._unplanned = None, "a binding was made before the first run; give its sizes in dims"
            return stock.io_binding()

    def _plan_for(self, values: Mapping[str, Any]) -> None:
        """Plan a waiting model for these sizes; a run in another thread goes on."""
        if self._planning.acquire(blocking=False):
            try:
                self._plan_waiting(values)
            finally:
                self._planning.release()

    def _plan_waiting(self, values: Mapping[str, Any]) -> None:
        waiting = self._waiting
        dims = None if waiting is None else waiting.sizes(values)
        if waiting is None or dims is None:
            return
        self._waiting = None
        try:
            self.__dict__.update(vars(waiting.open(dims, self.arena)))
            self._unplanned = None
        except Exception as error:  # ONNX Runtime's types have no common base
            self._unplanned = one_line(error)


@dataclass(frozen=True, slots=True)
class _UntilFirstRun:
    """A model to plan at its first run."""

    source: ModelPath
    options: Any
    level: Any
    providers: Sequence[Any] | None
    provider_options: Sequence[Mapping[str, Any]] | None
    dims: Mapping[str, int]
    more: Mapping[str, Any]

    def sizes(self, values: Mapping[str, Any]) -> Mapping[str, int] | None:
        graph = _graph_of(self.source)
        try:
            found = {name: size for each in fed_inputs(graph) for name, size in sizes_of(each, values[each.name])}
        except (KeyError, ValueError):  # the runtime has a better message
            return None
        return {**found, **self.dims}

    def open(self, dims: Mapping[str, int], arena: Arena) -> PlannedSession:
        with kept_options(self.options):
            self.options.graph_optimization_level = self.level
            with _planned_here(self.source, self.options, dims, self.more) as planned:
                return PlannedSession(
                    planned, self.options, self.providers, self.provider_options, arena=arena, **self.more
                )


def _graph_of(source: ModelPath) -> GraphProto:
    return load_model(ModelProto.FromString(source) if isinstance(source, bytes) else source).graph


def _missing_sizes(source: ModelPath, dims: Mapping[str, int]) -> Sequence[str]:
    try:
        return [name for name in dynamic_dimensions(_graph_of(source)) if name not in dims]
    except InputError:
        return []


def _reason_to_leave(options: Any, providers: Sequence[Any] | None, *, plan: bool) -> str | None:
    if not plan:
        return "plan=False"
    if any(provider != "CPUExecutionProvider" for provider in providers or ()):
        return "only models on the CPU are planned"
    if options.optimized_model_filepath:
        return "the runtime writes its own optimized file"
    return None


@contextmanager
def _planned_here(source: ModelPath, options: Any, dims: Mapping[str, int], more: Mapping[str, Any]) -> Generator[Path]:
    """Yield a file with the model as optimized here and planned for `dims`.

    Raises UsageError for wrong `dims`, UnsupportedError for a model that cannot be planned.
    """
    is_bytes = isinstance(source, bytes)
    given = load_model(ModelProto.FromString(source) if is_bytes else source)
    if is_bytes and external_locations(given):
        raise UnsupportedError("a model in memory with weights in files cannot be planned; open its path")
    with temporary_folder(given, None if is_bytes else Path(source).parent) as folder:
        path = folder / "given.onnx" if is_bytes else Path(source)
        if is_bytes:
            write_bytes(path, source)
        optimized, planned = folder / "optimized.onnx", folder / "planned.onnx"
        level = level_of(options)
        with kept_options(options):
            options.log_severity_level, options.enable_profiling = 4, False
            allow_copies(options, allowed=True)
            write_optimized(path, options, optimized, **more)
        model = OnnxModel(optimized, dims)
        model.save_for_session(model.planned(_SETTINGS).plan, planned, level)
        yield planned


class Pool:
    """Sessions that run one at a time in one arena, as large as the largest needs.

    A second concurrent run uses ordinary allocation, counted in `use` as "arena in use".
    """

    def __init__(self) -> None:
        self._arena = Arena(native_allocator())
        self._sessions: list[Session] = []

    def open(self, path_or_bytes: ModelPath, *arguments: Any, **more: Any) -> Session:
        """Open a model with arguments of `Session`."""
        session = Session(path_or_bytes, *arguments, arena=self._arena, **more)
        self._sessions.append(session)
        return session

    @property
    def sessions(self) -> tuple[Session, ...]:
        """All opened sessions."""
        return tuple(self._sessions)

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena, as large as the largest run."""
        return self._arena.size_bytes

    def trim(self) -> bool:
        """Release the arena's pages; return False if a run uses them."""
        return self._arena.trim()
