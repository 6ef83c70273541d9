"""TorchDynamo: what hands its graphs to AOTAutograd."""

from torch._dynamo.backends.common import aot_autograd

__all__ = ["aot_autograd"]
