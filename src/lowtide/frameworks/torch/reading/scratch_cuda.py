"""Memory that kernels on an NVIDIA GPU take for themselves while they run, as measured for PyTorch 2.11 on an H100."""

import os
from typing import Any

import torch

from lowtide.frameworks.torch.internals.runtime import compute_capability

_KIB = 2**10
_HOPPER = 9
"""The first compute capability whose products are given more."""
_WORKSPACES = (1024 * _KIB, 32768 * _KIB)
"""What PyTorch gives a product of cuBLASLt on GPUs before Hopper, and from it on."""

Arguments = dict[str, Any]


def cuda_scratch_bytes(name: str, given: Arguments) -> int:
    """Return the bytes that the kernel of an operator allocates on a GPU besides its outputs; 0 where unknown."""
    return _product_with_bias(given) if name == "addmm" else 0


def _product_with_bias(given: Arguments) -> int:
    """A product to whose rows a bias is added is one call of cuBLASLt, with a workspace of its own."""
    bias = given["self"]
    if not isinstance(bias, torch.Tensor) or (bias.dim() > 1 and bias.stride(0) != 0):
        return 0
    chosen = os.environ.get("CUBLASLT_WORKSPACE_SIZE", "")
    if chosen.isdecimal():
        return int(chosen) * _KIB
    capability = compute_capability(bias.device)
    return _WORKSPACES[capability is None or capability >= _HOPPER]
