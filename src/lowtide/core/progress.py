"""Progress of long computations."""

import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from html import escape
from typing import Any, TypeAlias

from lowtide.core.units import format_bytes

Report: TypeAlias = Callable[[str], None]
"""A callback that gets lines of text; some are a `Stage` or a `Found`."""

_PATIENCE_SECONDS = 2.0
_LINE_PATIENCE_SECONDS = 1.0
_BAR_WIDTH = 10


class Stage(StrEnum):
    """Stages of planning, in order. Lines between two stages are details."""

    READ = "reading the program"
    ORDER = "ordering the ops"
    CHOOSE = "choosing recomputation"
    IMPROVE = "improving the plan"
    FINISH = "checking the plan"
    DONE = "planned"

    @property
    def number(self) -> int:
        return list(Stage).index(self)


class Found(str):
    """The best plan so far, in a few words."""

    @classmethod
    def of(cls, over_bytes: int, extra_share: float) -> "Found":
        if over_bytes > 0:
            return cls(f"{format_bytes(over_bytes)} over the budget")
        return cls(f"fits at +{extra_share:.1%} time")


def silent(_line: str) -> None:
    """Ignore the line."""


_REPORT: ContextVar[Report] = ContextVar("report", default=silent)


def current_report() -> Report:
    return _REPORT.get()


@contextmanager
def showing(progress: bool | Report | None = True) -> Generator[Report]:
    """Report planning to a callback, or by a bar on a terminal or in a notebook.

    False reports nothing. True and None keep the callback of an outer context.
    """
    outer, bar = _REPORT.get(), None
    if callable(progress):
        report = progress
    elif progress is False:
        report = silent
    elif outer is not silent or not _can_show():
        report = outer
    else:
        report = bar = ProgressBar()
    token = _REPORT.set(report)
    try:
        yield report
    finally:
        _REPORT.reset(token)
        if bar is not None:
            bar.close()


def _can_show() -> bool:
    return sys.stderr.isatty() or _in_notebook()


def _in_notebook() -> bool:
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None or sys.stderr.isatty() else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class ProgressBar:
    """A line with stage, bar, best plan and time, shown after two seconds of work.

    With `prints`, a stream that is no terminal gets each stage longer than a second.
    """

    def __init__(self, *, prints: bool = False) -> None:
        self._lock = threading.RLock()
        self._prints = prints and not _can_show()
        self._in_notebook = _in_notebook()
        self._started: float | None = None
        self._stage: Stage | None = None
        self._line = ""
        self._best = ""
        self._timer: threading.Timer | None = None
        self._display: Any = None
        self._task: Any = None

    def __call__(self, line: str) -> None:
        with self._lock:
            if isinstance(line, Found):
                self._best = f"{line}, {'an interrupt' if self._in_notebook else 'Ctrl-C'} takes it"
            elif line == Stage.DONE:
                self.close()
            elif isinstance(line, Stage):
                self._stage = line
                self._enter(line)
            elif self._stage is None:
                self._enter(line)
            self._update()

    def close(self) -> None:
        with self._lock:
            self._stop_timer()
            self._stage, self._best, self._started = None, "", None
            if self._display is not None:
                self._display.stop()
                self._display = None

    def _enter(self, line: str) -> None:
        self._line = line
        if self._in_notebook:
            self._started = self._started or time.monotonic()
            return
        if self._prints:
            self._stop_timer()
        if self._timer is None:
            seconds = _LINE_PATIENCE_SECONDS if self._prints else _PATIENCE_SECONDS
            self._timer = threading.Timer(seconds, self._print if self._prints else self._show)
            self._timer.daemon = True
            self._timer.start()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _print(self) -> None:
        print(f"lowtide: {self._line} ...", file=sys.stderr, flush=True)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._timer is None:
                return
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(_BAR_WIDTH),
                TimeElapsedColumn(),
                TextColumn("{task.fields[best]}", markup=False),
            )
            self._display = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._display.add_task(str(self._line), total=None, best=self._best)
            self._display.start()
            self._update()

    def _update(self) -> None:
        if self._started is not None and time.monotonic() - self._started > _PATIENCE_SECONDS:
            self._display = self._display or _NotebookLine(self._line)
            self._display.show(f"{self._line}  {time.monotonic() - self._started:.0f} s  {self._best}")
        elif self._display is not None:
            total = None if self._stage is None else Stage.DONE.number
            done = 0 if self._stage is None else self._stage.number
            self._display.update(self._task, description=str(self._line), total=total, completed=done, best=self._best)


class _NotebookLine:
    """A line below a notebook's cell, without widgets.

    Other threads' output may appear below another cell, so only lines of the work replace it.
    """

    def __init__(self, text: str) -> None:
        from IPython.display import display  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

        self._handle: Any = display(self._content(text), raw=True, display_id=True)

    def show(self, text: str) -> None:
        self._handle.update(self._content(text), raw=True)

    def stop(self) -> None:
        self._handle.update({}, raw=True)

    @staticmethod
    def _content(text: str) -> dict[str, str]:
        return {"text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}
