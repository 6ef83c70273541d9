"""Interrupts of the command line: Ctrl-C, and what a scheduler or a closed terminal sends, are treated alike.

Imports next to nothing, so that the handlers stand before anything else is loaded.
"""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_CODE_OF_SIGNALS = 128
_received: list[int] = [signal.SIGINT]
"""The last of them that came."""


@contextmanager
def heeding_interrupts() -> Generator[None]:
    """Raise KeyboardInterrupt at SIGINT, SIGTERM and SIGHUP, except those that the caller ignores, as nohup does."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    heeded = [number for number, handler in before.items() if handler in (signal.SIG_DFL, signal.default_int_handler)]
    for number in heeded:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])


def interrupted_code() -> int:
    """Return what an interrupted command exits with: 130 at Ctrl-C, 143 at SIGTERM, 129 at SIGHUP, as shells do."""
    return _CODE_OF_SIGNALS + _received[-1]


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _received[:] = [number]
    raise KeyboardInterrupt
