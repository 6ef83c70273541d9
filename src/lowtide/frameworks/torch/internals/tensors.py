"""How tensors lie in storages, real ones and fake ones alike."""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportAttributeAccessIssue=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportPrivateImportUsage=false
# pyright: reportUnknownLambdaType=false

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lowtide.frameworks.torch.internals.sizes import hint


def storage_key(tensor: torch.Tensor) -> int:
    """Return what tells a tensor's storage from all others that are alive."""
    storage: Any = tensor.untyped_storage()
    return storage._cdata


def storage_bytes(tensor: torch.Tensor) -> int:
    """Return the size of a tensor's storage; of a symbolic one the value it is planned at."""
    return hint(tensor.untyped_storage().nbytes())


def is_dense(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor's elements lie in memory without overlaps and gaps."""
    return bool(torch.ops.aten.is_non_overlapping_and_dense.default(tensor))


def another_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a new tensor of the same form; of a fake one another fake one."""
    return tensor.new_empty_strided(tensor.shape, tensor.stride())


def plain_number(value: Any) -> Any:
    """Return the value that a symbolic number is planned at; anything else as it is.

    Where only running the program would tell the number, it is 1, or a half.
    """
    if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value
    if value.node.has_hint():
        return hint(value) if isinstance(value, torch.SymInt) else value.node.hint
    return 0.5 if isinstance(value, torch.SymFloat) else 1


def storage_over(memory: NDArray[np.uint8]) -> torch.UntypedStorage:
    """Return a storage that is the memory of an array and keeps it alive."""
    return torch.from_numpy(memory).untyped_storage()


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return all elements from a tensor's first to its last in memory, gaps included, as one row."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((last + 1 if tensor.numel() else 0,), (1,))
