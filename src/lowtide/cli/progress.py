"""Progress on stderr for stages that take longer than a second."""

import logging
import sys
import threading
from contextlib import redirect_stdout
from types import TracebackType
from typing import Any

_PATIENCE_SECONDS = 1.0


class Progress:
    """Prints the current stage on stderr once it has lasted a second; on a terminal, with a spinner.

    As a context manager, it redirects the output of user programs to stderr, since stdout is for the result, and
    disables logging, so that frameworks log no tracebacks.
    """

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None
        self._status: Any = None
        self._redirection = redirect_stdout(sys.stderr)
        self._disabled_logs = logging.root.manager.disable

    def __call__(self, stage: str) -> None:
        """Enter a stage, named in a few words."""
        self._end_stage()
        self._timer = threading.Timer(_PATIENCE_SECONDS, self._show, [stage])
        self._timer.daemon = True
        self._timer.start()

    def __enter__(self) -> "Progress":
        self._redirection.__enter__()
        logging.disable(logging.CRITICAL)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_stage()
        logging.disable(self._disabled_logs)
        self._redirection.__exit__(kind, error, trace)

    def _show(self, stage: str) -> None:
        if not sys.stderr.isatty():
            print(f"lowtide: {stage} ...", file=sys.stderr, flush=True)
            return
        from rich.console import Console
        from rich.text import Text

        self._status = Console(stderr=True).status(Text(f"{stage} ..."))
        self._status.start()

    def _end_stage(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._timer = None
        if self._status is not None:
            self._status.stop()
            self._status = None
