"""Progress of a verb on stderr."""

import logging
import sys
from contextlib import ExitStack, redirect_stdout
from types import TracebackType

from lowtide.core.progress import ProgressBar, showing


class Progress(ProgressBar):
    """Progress of a verb on stderr, shown once it takes seconds.

    Its context sends the output of user programs to stderr, since stdout is for the result, and disables logging, so
    that frameworks log no tracebacks.
    """

    def __init__(self) -> None:
        super().__init__(prints=True)
        self._context = ExitStack()

    def __enter__(self) -> "Progress":
        self._context.callback(logging.disable, logging.root.manager.disable)
        self._context.enter_context(redirect_stdout(sys.stderr))
        self._context.enter_context(showing(self))
        self._context.callback(self.close)
        logging.disable(logging.CRITICAL)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.close()
