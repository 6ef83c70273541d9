"""Handlers for interrupts by Ctrl-C (SIGINT), schedulers (SIGTERM) and closed terminals (SIGHUP).

Imports little, so that the handlers are set before anything else is loaded.
"""

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_CODE_OF_SIGNALS = 128
_SOON_SECONDS = 0.01
_received: list[int] = [signal.SIGINT]


@contextmanager
def handling_interrupts() -> Generator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP, except signals that the caller ignores, as nohup does.

    Until `command_is_loaded`, a signal ends the process, since Python drops exceptions within callbacks of imports.
    Afterwards, it raises KeyboardInterrupt.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    handled = [number for number, handler in before.items() if handler in (signal.SIG_DFL, signal.default_int_handler)]
    hook = sys.unraisablehook
    for number in handled:
        signal.signal(number, _leave)
    sys.unraisablehook = _send_again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number in handled:
            signal.signal(number, before[number])


def command_is_loaded() -> None:
    """Let handled signals raise KeyboardInterrupt from now on."""
    for number in _SIGNALS:
        if signal.getsignal(number) is _leave:
            signal.signal(number, _interrupt)


def interrupted_code() -> int:
    """Return 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP."""
    return _CODE_OF_SIGNALS + _received[-1]


def _leave(number: int, _frame: FrameType | None) -> None:
    os.write(2, b"lowtide: interrupted\n")
    os._exit(_CODE_OF_SIGNALS + number)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _received[:] = [number]
    raise KeyboardInterrupt


def _send_again(lost: Any) -> None:
    """Send an interrupt again that Python could not raise, such as in a callback of the garbage collector."""
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    from threading import Timer

    again = Timer(_SOON_SECONDS, signal.raise_signal, _received[-1:])
    again.daemon = True
    again.start()
