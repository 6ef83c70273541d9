"""Programs that run on a terminal."""

import os
import pty
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess


def shown_on_a_terminal(start: Callable[[int], "subprocess.Popen[bytes]"]) -> str:
    """Return the text that a process writes to a terminal; `start` starts it with the terminal's file descriptor."""
    controller, terminal = pty.openpty()
    shown = b""
    with start(terminal):
        os.close(terminal)
        while True:
            try:
                shown += os.read(controller, 10**5)
            except OSError:  # the terminal is closed
                break
    os.close(controller)
    return shown.decode()
