"""JAX: traced functions become graphs, plans become functions whose recomputation XLA keeps.

The public names are in `lowtide.jax`. Importing modules of this package loads JAX; `lowtide` itself does so only when
it is given something of JAX's.
"""

from lowtide.frameworks.table import require

require("jax")
