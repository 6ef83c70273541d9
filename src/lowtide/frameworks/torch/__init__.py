"""PyTorch: capture a program as one graph, read it, apply a plan to it, measure both.

The public names are in `lowtide.torch`. Importing modules of this package loads PyTorch; `lowtide` itself does so only
when it is given something of PyTorch's. Raises UnsupportedError if the installed PyTorch is not supported.
"""

from importlib import import_module

from lowtide.frameworks.table import require

require("torch")
import_module(f"{__name__}.internals")  # the first failing import names the supported releases
