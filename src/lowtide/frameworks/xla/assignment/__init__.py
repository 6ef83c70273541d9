"""XLA's own buffer assignment: what it reserved for a module and where, and the same memory as the model counts it."""
