"""How the elements of a tensor lie in memory, as kernels ask, and what bringing them into order takes."""

import torch


def bytes_of(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


def contiguous_copy(tensor: torch.Tensor) -> int:
    """Return the bytes of the copy that makes a tensor contiguous, 0 where it is."""
    return 0 if tensor.is_contiguous() else bytes_of(tensor)


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Tell whether the channels of a batch of images stand together, and not also in the order of dimensions."""
    if tensor.dim() not in (4, 5) or tensor.is_contiguous():
        return False
    return tensor.is_contiguous(memory_format=torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d)
