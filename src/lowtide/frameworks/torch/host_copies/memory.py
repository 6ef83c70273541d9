"""The memory that a tensor spans."""

import torch


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return all elements from a tensor's first to its last in memory, gaps included, as one row."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((last + 1 if tensor.numel() else 0,), (1,))
