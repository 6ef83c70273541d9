"""Code that reads the clock, files or the environment."""

import builtins
import datetime
import io
import os
import time
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from lowtide.frameworks.torch.capture.state.names import with_inner

CLOCK, FILES, ENVIRONMENT = "the clock", "files", "the environment"

_CLOCKS = ("time", "perf_counter", "monotonic", "process_time", "thread_time", "clock_gettime")
_CLOCK_NAMES = (*_CLOCKS, *(f"{name}_ns" for name in _CLOCKS), "localtime", "gmtime", "ctime", "asctime", "strftime")
_FILE_NAMES = ("stat", "lstat", "listdir", "scandir", "walk", "access", "open", "read")
_PATH_NAMES = ("exists", "lexists", "isfile", "isdir", "getsize", "getmtime", "getctime")
_KNOWN: dict[int, str] = {
    **{id(getattr(time, name)): CLOCK for name in _CLOCK_NAMES if hasattr(time, name)},
    **{id(getattr(os, name)): FILES for name in _FILE_NAMES},
    **{id(getattr(os.path, name)): FILES for name in _PATH_NAMES},
    **dict.fromkeys(map(id, (builtins.open, io.open, torch.load, np.load, np.loadtxt, np.fromfile)), FILES),
    **dict.fromkeys(map(id, (os.environ, os.getenv)), ENVIRONMENT),
}
_DATES = (datetime.datetime, datetime.date)
_DATE_METHODS = {"now", "today", "utcnow"}
_FILE_METHODS = {"read_text", "read_bytes"}
_MODULES: dict[str, types.ModuleType] = {each.__name__: each for each in (datetime, os, time)}


def source_of(value: Any) -> str | None:
    return _KNOWN.get(id(value))


def sources_of(function: types.FunctionType) -> set[str]:
    """Return the sources that a function's code may read, judging by its names; O(names squared)."""
    names = {name for part in with_inner(function.__code__) for name in part.co_names}
    found = {FILES} if names & _FILE_METHODS else set[str]()
    for name in names:
        value = function.__globals__.get(name, getattr(builtins, name, None))
        found |= set(_sources(_MODULES.get(name) if value is None else value, names))
    return found


def _sources(value: Any, names: set[str]) -> Iterator[str]:
    if (known := source_of(value)) is not None:
        yield known
    elif isinstance(value, types.ModuleType):
        for name in names:
            part = vars(value).get(name)
            if part is os.path or any(part is kind for kind in _DATES):
                yield from _sources(part, names)
            elif (known := source_of(part)) is not None:
                yield known
    elif any(value is kind for kind in _DATES) and names & _DATE_METHODS:
        yield CLOCK
