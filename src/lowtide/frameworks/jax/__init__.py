"""JAX: read traced functions as graphs, and write plans as functions in which XLA keeps the recomputation.

The public names are in `lowtide.jax`. Importing a module of this package loads JAX.
"""

from lowtide.frameworks.table import require

require("jax")
