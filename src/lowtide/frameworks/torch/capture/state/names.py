"""Names that Python code uses, and the code that is followed."""

import functools
import sys
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lowtide
from lowtide.frameworks.torch.internals.interpreter import running_frames

_PYTORCH, _LOWTIDE, _NUMPY = (str(Path(str(package.__file__)).parent) for package in (torch, lowtide, np))
_FOLLOWED = (f"{_PYTORCH}/nn/modules/", f"{_PYTORCH}/nn/utils/", f"{_PYTORCH}/optim/swa_utils")
_LIBRARY = sysconfig.get_paths()["stdlib"]
_DYNAMIC = frozenset({"getattr", "setattr", "vars", "__dict__"})


@functools.cache
def is_followed_file(path: str) -> bool:
    """Return whether code in a file is followed: no libraries of Python, and only modules of PyTorch."""
    if path.startswith(_PYTORCH):
        return path.startswith(_FOLLOWED)
    if path.startswith((_LOWTIDE, _NUMPY, "<frozen")):
        return False
    return not path.startswith(_LIBRARY) or "site-packages" in path or "dist-packages" in path


@functools.cache
def is_followed_module(name: str) -> bool:
    path: Any = getattr(sys.modules.get(name), "__file__", None)
    is_main = name == "__main__"
    return is_main or (isinstance(path, str) and is_followed_file(path) and not path.startswith(_PYTORCH))


def is_followed_class(kind: type) -> bool:
    return is_followed_module(kind.__module__) or kind.__module__.startswith(("torch.nn.modules", "torch.optim.swa"))


def names_in(code: types.CodeType) -> set[str]:
    return {name for part in with_inner(code) for name in (*part.co_names, *mentioned_as_text(part))}


def with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from with_inner(constant)


def mentioned_as_text(code: types.CodeType) -> list[str]:
    return [each for each in code.co_consts if isinstance(each, str) and each.isidentifier()]


def computes_names(code: types.CodeType) -> bool:
    return not is_in_pytorch(code.co_filename) and not names_in(code).isdisjoint(_DYNAMIC)


def is_in_pytorch(path: str) -> bool:
    return path.startswith(_PYTORCH)


def global_names(function: types.FunctionType) -> list[str]:
    table = function.__globals__
    found = dict.fromkeys(name for part in with_inner(function.__code__) for name in part.co_names if name in table)
    return list(found)


def calling_line() -> str:
    """Return file and line of the innermost running user code, such as " (model.py:41)"."""
    frames = (frame for frame in running_frames() if is_user_file(frame.f_code.co_filename))
    frame = next(frames, None)
    return "" if frame is None else f" ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"


def is_user_file(path: str) -> bool:
    return is_followed_file(path) and not is_in_pytorch(path) and path != "<string>"
