"""Interrupts of the command line: Ctrl-C, and what a scheduler or a closed terminal sends, are treated alike.

Imports next to nothing, so that the handlers stand before anything else is loaded.
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
"""The last of them that came."""


@contextmanager
def heeding_interrupts() -> Generator[None]:
    """End the process at SIGINT, SIGTERM and SIGHUP, except those that the caller ignores, as nohup does.

    While the command is loaded nothing can be lost, and an exception could be: within callbacks of imports Python drops
    it. So the process ends at once until `command_is_loaded`, and KeyboardInterrupt is raised from then on.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    heeded = [number for number, handler in before.items() if handler in (signal.SIG_DFL, signal.default_int_handler)]
    hook = sys.unraisablehook
    for number in heeded:
        signal.signal(number, _leave)
    sys.unraisablehook = _heed_again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number in heeded:
            signal.signal(number, before[number])


def command_is_loaded() -> None:
    """Let interrupts raise KeyboardInterrupt, where they are heeded."""
    for number in _SIGNALS:
        if signal.getsignal(number) is _leave:
            signal.signal(number, _interrupt)


def interrupted_code() -> int:
    """Return what an interrupted command exits with: 130 at Ctrl-C, 143 at SIGTERM, 129 at SIGHUP, as shells do."""
    return _CODE_OF_SIGNALS + _received[-1]


def _leave(number: int, _frame: FrameType | None) -> None:
    os.write(2, b"lowtide: interrupted\n")
    os._exit(_CODE_OF_SIGNALS + number)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _received[:] = [number]
    raise KeyboardInterrupt


def _heed_again(lost: Any) -> None:
    """Send an interrupt again that was raised where Python cannot pass it on, such as a callback of its collector."""
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    from threading import Timer

    again = Timer(_SOON_SECONDS, signal.raise_signal, _received[-1:])
    again.daemon = True
    again.start()
