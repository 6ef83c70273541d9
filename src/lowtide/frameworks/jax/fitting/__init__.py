"""Functions that fit a budget: candidates from plans, compiled, and judged by what XLA itself says they need."""
