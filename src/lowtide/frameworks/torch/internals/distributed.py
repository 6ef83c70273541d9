"""`torch.distributed`: process groups, their shared store, and local parts of DTensors."""
# pyright: reportAttributeAccessIssue=false, reportPrivateImportUsage=false, reportPrivateUsage=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed
from torch._guards import CompileContext


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """A rank, the number of ranks, and their store."""

    rank: int
    size: int
    store: Any

    def publish(self, key: str, text: str) -> None:
        self.store.set(f"{key}/{self.rank}", text)

    def collect(self, key: str, ranks: Sequence[int], patience: timedelta) -> dict[int, str | None]:
        """Return other ranks' texts under a key; None for ranks that time out."""
        end = time.monotonic() + patience.total_seconds()
        found: dict[int, str | None] = {}
        for rank in ranks:
            left = timedelta(seconds=max(end - time.monotonic(), 0.01))
            found[rank] = self._wait(f"{key}/{rank}", left)
        return found

    def _wait(self, key: str, patience: timedelta) -> str | None:
        try:
            self.store.wait([key], patience)
        except RuntimeError:  # each kind of store raises its own error on a timeout
            return None
        return self.store.get(key).decode()


def rendezvous() -> Rendezvous | None:
    """Return this process's rendezvous; None if it runs alone or in a "fake" group."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    size = torch.distributed.get_world_size()
    if size == 1 or torch.distributed.get_backend() == "fake":
        return None
    store = torch.distributed.PrefixStore("lowtide", torch.distributed.distributed_c10d._get_default_store())
    return Rendezvous(torch.distributed.get_rank(), size, store)


def ranks_of(groups: Iterable[str]) -> list[int]:
    return sorted({rank for name in groups for rank in torch.distributed.get_process_group_ranks(_resolved(name))})


def size_and_span(group: Any) -> tuple[int, int] | None:
    """Return a group's size and the range of its ranks; None if unknown."""
    ranks = _query(torch.distributed.get_process_group_ranks, group)
    return None if ranks is None else (len(ranks), max(ranks) - min(ranks) + 1)


def backend_of(group: Any) -> str | None:
    backend = _query(torch.distributed.get_backend, group)
    return None if backend is None else str(backend)


def _query(function: Callable[[Any], Any], group: Any) -> Any:
    try:
        return function(_resolved(group))
    except (RuntimeError, ValueError, KeyError, TypeError):
        return None


def _resolved(group: Any) -> Any:
    resolve: Any = torch.distributed.distributed_c10d._resolve_process_group
    return resolve(group) if isinstance(group, str) else group


def compilation() -> str:
    """Return TorchDynamo's compilation id, equal on all ranks."""
    return str(CompileContext.current_compile_id())


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    return tensor._local_tensor if is_distributed(tensor) else tensor


def is_distributed(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a DTensor, without importing its module."""
    module: Any = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def distributed_twin(part: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return a DTensor like `other` over the memory of a part, with its gradient; else the part itself."""
    if not is_distributed(other):
        return part
    twin = distributed_as(part.detach(), other).requires_grad_(part.requires_grad)
    twin.grad = None if part.grad is None else distributed_as(part.grad, other)
    return twin


def distributed_as(part: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Wrap a local part as a DTensor like `other`, if that is one. Differentiable."""
    if not is_distributed(other):
        return part
    full: Any = other
    return type(full).from_local(
        part, full.device_mesh, full.placements, run_check=False, shape=full.shape, stride=full.stride()
    )
