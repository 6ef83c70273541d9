"""PyTorch: capture a program as one graph, read it, apply a plan to it, measure both.

Importing modules of this package loads PyTorch; `lowtide` itself does so only for objects of PyTorch. Raises
UnsupportedError for an unsupported PyTorch.
"""

from importlib import import_module

from lowtide.frameworks.table import require

require("torch")
import_module(f"{__name__}.internals")  # the first failing import names the supported releases
