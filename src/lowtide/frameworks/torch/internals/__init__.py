"""Access to the private and untyped parts of PyTorch, one file per subsystem.

A new release of PyTorch is ported in this folder only; see `docs/porting_torch.md`. Importing this package loads all
files. Raises UnsupportedError if the installed PyTorch lacks a private name.
"""

from importlib import import_module
from pkgutil import iter_modules

import torch

from lowtide.frameworks.tested_releases import PYTORCH

try:
    for _file in iter_modules(__path__):
        import_module(f"{__name__}.{_file.name}")
except (ImportError, AttributeError) as _error:
    raise PYTORCH.unsupported(torch.__version__, _error) from None
PYTORCH.warn(torch.__version__)
