"""The public PyTorch names: `TrainingStep`, `capture`, `measure` and what goes with them."""

from lowtide.frameworks.torch import (
    Applied,
    Captured,
    MeasuredCall,
    TorchModel,
    TrainingStep,
    accepts,
    apply,
    capture,
    measure,
    read,
)

__all__ = [
    "Applied",
    "Captured",
    "MeasuredCall",
    "TorchModel",
    "TrainingStep",
    "accepts",
    "apply",
    "capture",
    "measure",
    "read",
]
