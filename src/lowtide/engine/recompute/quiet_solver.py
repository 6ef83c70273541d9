"""HiGHS without its banner, which release 1.16 prints before any option can be set."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from ctypes import CDLL
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import highspy

_lock = Lock()


def new_solver() -> "highspy.Highs":
    """Return a silent solver on one thread."""
    import highspy

    with _lock:
        _print_banner()
    highs = highspy.Highs()
    for option, value in {"output_flag": False, "threads": 1, "random_seed": 0}.items():
        highs.setOptionValue(option, value)
    return highs


@cache
def _print_banner() -> None:
    import highspy

    with _discarded_output():
        highspy.Highs()


@contextmanager
def _discarded_output() -> Generator[None]:
    _flush_c()
    try:
        original = os.dup(1)
    except OSError:  # standard output is closed
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        _flush_c()
        os.dup2(original, 1)
        os.close(original)
        os.close(nowhere)


def _flush_c() -> None:
    with suppress(OSError, TypeError, AttributeError):  # Windows has no library without a name
        CDLL(None).fflush(None)
