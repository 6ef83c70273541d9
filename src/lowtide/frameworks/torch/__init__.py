"""PyTorch: capture a program as one graph, read it, apply a plan to it, measure both.

The public names are in `lowtide.torch`. Importing modules of this package loads PyTorch; `lowtide` itself does so only
when it is given something of PyTorch's.
"""

from lowtide.frameworks.table import require

require("torch")
