"""The ops that carry out a plan's copies: one starts a copy to the host, one starts a copy back, one waits for either.

`wait_for_copy` "writes" what the copy makes, so that no compiler moves a reader before it, and reads what is copied,
so that its storage outlives the copy. Neither op keeps state that another call could lack: a saved copy may come back
any number of times, for a second backward pass as well.

PyTorch's `torch.ops.ao.offload`, `reload` and `wait_tensor` are not used: they know no CPU tensors, their copies have
other strides than what they copy, and their wait gives away storage that a second backward pass reads.
"""

import torch

from lowtide.frameworks.torch.emit.transfers import cuda_streams
from lowtide.frameworks.torch.emit.transfers.cpu_host import cpu_host
from lowtide.frameworks.torch.internals.operators import define_operator
from lowtide.frameworks.torch.internals.tensors import memory_of

HOST = torch.device("cpu")


def _copy_to_host(source: torch.Tensor) -> torch.Tensor:
    if source.device.type == "cuda":
        return cuda_streams.start_copy(source, HOST)
    made = cpu_host.empty_like(source)
    memory_of(made).copy_(memory_of(source))
    return made


def _copy_to_device(source: torch.Tensor, device: torch.device) -> torch.Tensor:
    if device.type == "cuda":
        return cuda_streams.start_copy(source, device)
    made = like(source, device)
    memory_of(made).copy_(memory_of(source))
    return made


def _wait_for_copy(made: torch.Tensor, source: torch.Tensor) -> None:
    device = source.device if made.device == HOST else made.device
    if device.type == "cuda":
        cuda_streams.wait_for_copy(made, device)


def like(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a new tensor of the same form on a device; of a fake one another fake one."""
    return tensor.new_empty_strided(tensor.shape, tensor.stride(), device=device)


def _like_on_host(source: torch.Tensor) -> torch.Tensor:
    return like(source, HOST)


def _nothing(made: torch.Tensor, source: torch.Tensor) -> None:
    pass


COPY_TO_HOST = define_operator("copy_to_host(Tensor source) -> Tensor", _copy_to_host, _like_on_host)
"""Starts a copy to the host of what a tensor spans there, and returns it in the tensor's form."""
COPY_TO_DEVICE = define_operator("copy_to_device(Tensor source, Device device) -> Tensor", _copy_to_device, like)
"""Starts a copy back of what `COPY_TO_HOST` returned."""
WAIT_FOR_COPY = define_operator("wait_for_copy(Tensor(a!) made, Tensor source) -> ()", _wait_for_copy, _nothing)
"""Holds what is issued next on the device until a copy is complete; its source stays until then."""
