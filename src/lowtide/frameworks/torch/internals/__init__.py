"""Access to the private and untyped parts of PyTorch, one file per subsystem.

A new release of PyTorch is ported in this folder only; see `docs/porting_torch.md`. Raises UnsupportedError if the
installed PyTorch lacks a private name.
"""

from importlib import import_module
from pkgutil import iter_modules

import torch

from lowtide.frameworks.tested_releases import PYTORCH

_OF_INDUCTOR = {"absent_cuda", "inductor", "kernel_storage", "kernels"}
"""Files that load Inductor, which takes half a second."""
_unneeded = _OF_INDUCTOR if PYTORCH.include(torch.__version__) else set[str]()

try:
    for _file in iter_modules(__path__):
        if _file.name not in _unneeded:
            import_module(f"{__name__}.{_file.name}")
except (ImportError, AttributeError) as _error:
    raise PYTORCH.unsupported(torch.__version__, _error) from None
PYTORCH.warn(torch.__version__)
