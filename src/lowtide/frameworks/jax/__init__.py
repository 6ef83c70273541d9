"""JAX: read traced functions as graphs, and write plans as functions in which XLA keeps the recomputation.

Importing a module of this package loads JAX. Raises UnsupportedError for an unsupported JAX.
"""

from importlib import import_module

from lowtide.frameworks.table import require
from lowtide.frameworks.tested_releases import JAX

require("jax")
_version = import_module("jax").__version__
try:
    import_module(f"{__name__}.internals")
except (ImportError, AttributeError) as _error:
    raise JAX.unsupported(_version, _error) from None
JAX.warn(_version)
