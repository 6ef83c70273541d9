"""Where in the user's program an error arose: the module and the line, as ops are named that were captured."""

from pathlib import Path
from traceback import extract_tb, walk_tb

import torch
from torch import nn

import lowtide
from lowtide.frameworks.torch.internals.runtime import name_in

_PYTORCH, _LOWTIDE = (str(Path(str(package.__file__)).parent) for package in (torch, lowtide))


def place_of(error: BaseException) -> str:
    """Return the user's module and line, " in blocks.3.mlp.act at model.py:41", as far as they are known."""
    path, line = _module_of(error), _line_of(error)
    return f"{path and f' in {path}'}{line and f' at {line}'}"


def _module_of(error: BaseException) -> str:
    """Return the path of the innermost module that was running, in the outermost that has it."""
    running = [frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__)]
    modules = [each for each in running if isinstance(each, nn.Module)]
    for outer in modules:
        name = name_in(outer, modules[-1])
        if name is not None:
            return name
    return ""


def _line_of(error: BaseException) -> str:
    frames = [
        frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith((_PYTORCH, _LOWTIDE, "<"))
    ]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
