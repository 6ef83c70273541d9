"""Sessions that plan a model when they open it, as ONNX Runtime optimizes it for this machine."""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from onnx import ModelProto

from lowtide.core.errors import UnsupportedError, UsageError, one_line
from lowtide.core.files import write_bytes
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.arena.allocator import Arena, native_allocator
from lowtide.frameworks.onnx.loading.external_data import external_locations, temporary_folder
from lowtide.frameworks.onnx.loading.load import PLANNED, load_model, read_metadata
from lowtide.frameworks.onnx.model import OnnxModel
from lowtide.frameworks.onnx.running.levels import level_of, write_optimized
from lowtide.frameworks.onnx.running.planned_session import PlannedSession, check_sequential
from lowtide.frameworks.onnx.running.session import allow_copies, kept_options

_SETTINGS = PlanSettings(effort="fast", addresses=False)

ModelPath = str | bytes | os.PathLike[str]


class Session(PlannedSession):
    """An `onnxruntime.InferenceSession` on the CPU with all values of a run at planned addresses in one arena.

    A file by lowtide runs in its order. Any other model is planned when it is opened: ONNX Runtime optimizes it for
    this machine at the level of the options, by default its last, and lowtide orders the nodes. The first run per input
    shapes is recorded and packed, unless the file has addresses. A run that allocates differently (data-dependent
    sizes, another thread) uses ordinary allocation and counts in `use`. Results are outside the arena.
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

        `dims` are sizes of dynamic dimensions to plan for; runs may have others. Nodes run in the runtime's own order
        without `plan`, and if a size is missing (`unplanned` has the reason). The options lose the runtime's arena,
        pattern and reuse. Raises UsageError for parallel execution and wrong `dims`, UnsupportedError for a file that
        is for another kind of processor.
        """
        onnxruntime: Any = import_module("onnxruntime")
        options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        check_sequential(options)

        def open_model(source: ModelPath) -> None:
            super(Session, self).__init__(source, options, providers, provider_options, arena=arena, **more)

        is_planned = PLANNED in read_metadata(path_or_bytes)
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
        open_model(path_or_bytes)

    @property
    def unplanned(self) -> str | None:
        """Why nodes run in the runtime's own order, in one line; None if they run in a planned one."""
        return self._unplanned


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
    """Yield a file with the model as the runtime optimizes it here, planned for sizes `dims`.

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
