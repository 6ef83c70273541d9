"""The public PyTorch names: `TrainingStep`, `capture`, `measure` and what goes with them."""

from lowtide.frameworks.torch import (
    Applied,
    Captured,
    Comparison,
    Measurement,
    TrainingStep,
    accepts,
    apply,
    capture,
    compare,
    measure,
    read,
)

__all__ = [
    "Applied",
    "Captured",
    "Comparison",
    "Measurement",
    "TrainingStep",
    "accepts",
    "apply",
    "capture",
    "compare",
    "measure",
    "read",
]
